"""The wire: how a box is found, reached, trusted and spoken to."""
