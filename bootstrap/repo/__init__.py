"""What you stand in: the commit, what would stay behind, and what must travel."""
