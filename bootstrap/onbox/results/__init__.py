"""What a run made: which files are complete, whose they are, and what is kept of earlier runs."""
