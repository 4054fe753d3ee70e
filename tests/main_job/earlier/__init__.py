"""Earlier versions of boxstrap, kept whole: what they set up must serve the present one.

`COMMIT.tar.xz` is `git archive COMMIT bootstrap templates profiles`, so that a clone without
history has them too.
"""

from __future__ import annotations

import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.cli import Running
from tests.main_job.rented import Rented
from tests.plain_environment import HERE

ARCHIVES = Path(__file__).parent


def unpacked(commit: str, folder: Path) -> Path:
    """The program as it was at this commit, in a folder of that name; skips if nobody has it."""
    folder, kept = folder / commit, ARCHIVES / f"{commit}.tar.xz"
    archived = kept.read_bytes() if kept.exists() else archive(commit)
    if not archived:
        pytest.skip(f"this clone has no commit {commit}")
    with tarfile.open(fileobj=BytesIO(archived)) as tar:
        tar.extractall(folder, filter="data")
    return folder


def archive(commit: str) -> bytes:
    """What is kept of a commit, from this clone; empty if it doesn't have it."""
    argv = ["git", "-C", str(HERE), "archive", commit, "bootstrap", "templates", "profiles"]
    return subprocess.run(argv, capture_output=True, check=False).stdout


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
