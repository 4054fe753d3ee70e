"""A box that a command works on: the login to it, and what this machine has of its runs."""
