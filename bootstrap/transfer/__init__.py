"""Files to a box, and from it: over the login that is there, whole or not at all."""
