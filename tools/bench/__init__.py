"""The benchmark: `python -m tools.bench` prints one table from one run; see README.md here."""
