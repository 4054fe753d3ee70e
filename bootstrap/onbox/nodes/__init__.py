"""One training on several nodes: what they check before it, and how they begin and end together."""
