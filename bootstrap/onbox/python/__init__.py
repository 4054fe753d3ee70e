"""What builds the environment: uv, conda's packages, the image's own, bytecode."""
