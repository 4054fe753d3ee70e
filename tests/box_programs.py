"""The programs of a box, laid as on the box."""

import sys
from pathlib import Path

from bootstrap.setup.program import program_files


def lay_programs(folder: Path) -> Path:
    """Write all of them into `folder`, which is created if missing."""
    for name, text in program_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def lay_programs_alone(folder: Path) -> Path:
    """Write them so that a lease's safety check finds no other user and no other working folder:
    this machine may have some."""
    with (lay_programs(folder) / "onbox/lease/safety.py").open("a") as safety:
        safety.write("people = working_folders = list\n")
    return folder


def runner_of(programs: Path, run: Path) -> list[str]:
    """Return the command that starts the runner of a run."""
    return [sys.executable, "-I", "-S", "-B", *map(str, (onbox(programs), "runs.runner", run))]


def onbox(folder: Path) -> Path:
    """Return what starts the Python programs that were laid into `folder`."""
    return folder / "onbox" / "__main__.py"
