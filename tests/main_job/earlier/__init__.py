"""Earlier versions of boxstrap, kept whole: what they set up must serve the present one.

`COMMIT.tar.xz` is `git archive COMMIT bootstrap templates profiles`, so that a clone without
history has them too.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.cli import Running
from tests.main_job.rented import Rented

ARCHIVES = Path(__file__).parent


def unpacked(commit: str, folder: Path) -> Path:
    """The program as it was at this commit, in a folder of that name."""
    folder = folder / commit
    with tarfile.open(ARCHIVES / f"{commit}.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    return folder


def before(rented: Rented, earlier: Path, *arguments: str) -> Running:
    """A command of the earlier program."""
    return rented.begin(*arguments, PYTHONPATH=str(earlier))


def kept(rented: Rented, tree: str) -> dict[str, str]:
    """The tree's commit and own files, its environment, and the processes that train in it."""
    looks = {
        "head": f"git -C {tree} rev-parse HEAD",
        "files": f"cd {tree} && stat -c '%n %i %Y' train.py .git/HEAD",
        "environment": f"cd {tree}/.venv && stat -c '%n %i %Y' pyvenv.cfg bin lib",
        "training": "pgrep -f 'bin/python [t]rain.py' || :",
        "work": f"cat {rented.folder}/runs/*/*/work 2>/dev/null || :",
    }
    return {name: rented.as_user(command) for name, command in looks.items()}
