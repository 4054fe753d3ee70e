"""`python -m bootstrap`: the same as `boxstrap`."""

from bootstrap.cli import main

main()
