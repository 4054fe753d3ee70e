"""What `make` runs on this checkout: benchmarks, proofs, and what writes or renews files."""
