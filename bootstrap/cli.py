"""The program `boxstrap`: the same tasks as `inv`, anywhere."""

from __future__ import annotations

import gc
import os
import sys

# Imports make much that lives on and little to collect: an eighth of the start went into looking.
gc.set_threshold(100_000, 50, 50)

from bootstrap import __version__  # noqa: E402
from bootstrap.errors import cant_write  # noqa: E402
from bootstrap.tasks import namespace  # noqa: E402
from bootstrap.tasks.program import BoxProgram  # noqa: E402

program = BoxProgram(version=__version__, namespace=namespace, name="boxstrap", binary="boxstrap")


def main() -> None:
    """Run the task that was typed; leaves with the contract's exit code."""
    code: str | int | None = 0
    try:
        try:
            program.run()
        except SystemExit as end:
            code = end.code
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass  # whoever read us has gone (`| head`)
    except OSError as error:  # onto a full disk
        if not code:
            code = 1
            sys.stderr.write(f"{cant_write('the output', error)}\n")
    if "bootstrap.repo.view" in sys.modules:
        sys.modules["bootstrap.repo.view"].remove_all()
    # Tearing down the modules takes a tenth of a second, and there is nothing left to save.
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)
