"""What is at work beside runs: samples of GPUs and machine, and notices that the box is taken."""
