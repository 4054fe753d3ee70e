"""The repositories of this box: files placed in their trees, what was made there, its way home."""
