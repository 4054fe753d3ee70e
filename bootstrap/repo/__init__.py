"""What you stand in: the commit, the changes on it, and what must travel."""
