"""What is handed out: the wheel, the source archive, and the uv that a box is given."""
