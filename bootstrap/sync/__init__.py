"""The repository here and its tree on a box: sent again, on every save, and brought home."""
