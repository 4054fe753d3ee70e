"""`python -m bootstrap`: the same as `boxstrap`."""

from bootstrap.tasks.cli import main

main()
