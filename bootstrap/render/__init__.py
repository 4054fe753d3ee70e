"""Rendering: a profile and a commit become one readable bash script."""
