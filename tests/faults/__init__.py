"""The table of faults: what was done to a box, a link or a user, and what became of it."""
