"""Profiles: what a box should become, and where each value comes from."""
