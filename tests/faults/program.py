"""boxstrap with changed constants, its own and those of its program on a box: no test waits for
minutes."""

import sys
from pathlib import Path

_PROGRAM = """\
#!{python}
import re
import bootstrap.setup.script as variables
from bootstrap.steps.shell import onbox_files
from bootstrap.tasks.cli import main
for name, number in {numbers}.items():
    line = re.compile(f"^{{name}} = .*$", re.MULTILINE)
    here = [file for file, text in onbox_files().items() if line.search(text)]
    for file in here:
        onbox_files()[file] = line.sub(f"{{name}} = {{number}}", onbox_files()[file])
    assert here or hasattr(variables, name)
    setattr(variables, name, number)
main()
"""


def with_numbers(folder: Path, **numbers: int) -> str:
    """Write such a program and return its path: `with_numbers(folder, LOCK_PATIENCE_S=5)`."""
    path = folder / "boxstrap"
    path.write_text(_PROGRAM.format(python=sys.executable, numbers=numbers))
    path.chmod(0o755)
    return str(path)
