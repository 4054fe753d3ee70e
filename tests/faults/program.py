"""boxstrap with changed constants, so that a test need not wait for minutes."""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = """\
#!{python}
import bootstrap.setup.script as variables
from bootstrap.tasks.cli import main
for name, number in {numbers}.items():
    assert hasattr(variables, name)
    setattr(variables, name, number)
main()
"""


def with_numbers(folder: Path, **numbers: int) -> str:
    """Write such a program and return its path: `with_numbers(folder, LOCK_PATIENCE_S=5)`."""
    path = folder / "boxstrap"
    path.write_text(_PROGRAM.format(python=sys.executable, numbers=numbers))
    path.chmod(0o755)
    return str(path)
