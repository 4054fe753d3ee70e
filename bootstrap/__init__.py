"""boxstrap: from a rented GPU box to a running training in one command."""

__version__ = "0.1.0"
