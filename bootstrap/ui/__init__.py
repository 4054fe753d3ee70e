"""What the user sees: a live timeline, plain lines, or one JSON document."""
