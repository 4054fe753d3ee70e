"""The box's side of a transfer. Its text travels with each one, and nothing of it stays there.

Standard library alone, for Python 3.8 and later.
"""
