"""What is said between this machine and a box, over an established link.

A query is a short script in the argument of one command, so that the answer
is there after a single exchange. A box's answers are a stranger's words: they
are read with limits, and everything in them that is shown is sanitized first.
"""
