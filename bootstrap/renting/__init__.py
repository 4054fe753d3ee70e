"""Boxes that somebody pays for: rented, watched, given back."""
