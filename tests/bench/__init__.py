"""The benchmark: `python -m tests.bench` prints one table from one run; see README.md here."""
