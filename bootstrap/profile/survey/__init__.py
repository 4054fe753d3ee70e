"""What a repository shows: a reader for each kind of file, within limits. Nothing is run."""
