"""What is at work beside runs: samples of GPUs and machine, and results into a bucket."""
