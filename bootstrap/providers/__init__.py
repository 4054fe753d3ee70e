"""What people rent boxes from: one module each, over one small protocol."""

NAMES = ("vast", "runpod", "lambda", "paperspace")
"""As `--host NAME:ID` has them; here, so that a start that asks none of them imports none."""
