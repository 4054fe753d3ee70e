"""What people rent boxes from: one module each, a subclass of `CloudAccount`."""

NAMES = ("vast", "runpod", "lambda", "paperspace")
"""The names in `--host NAME:ID`. Here, so that a command that asks no provider imports none."""
