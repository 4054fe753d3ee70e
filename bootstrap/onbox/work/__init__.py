"""The repositories of this box: their trees, what was made in them, and its way home."""
