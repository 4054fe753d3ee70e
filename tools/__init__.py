"""What `make` runs on this checkout and no test needs: benchmarks, proofs in real programs."""
