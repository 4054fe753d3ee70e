"""What a profile names as secret: where its values come from, and their way to a box."""
