"""The program `boxstrap`: the same tasks as `inv`, anywhere."""

from __future__ import annotations

import os
import sys

from invoke.program import Program

from bootstrap import __version__
from bootstrap.tasks import namespace

program = Program(version=__version__, namespace=namespace, name="boxstrap", binary="boxstrap")


def main() -> None:
    """Run the task that was typed; leaves with the contract's exit code."""
    try:
        program.run()
    except BrokenPipeError:
        # Whoever read us has gone (`| head`); the rest is for nobody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
