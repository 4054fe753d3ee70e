"""pytest on tests of a test's own, with this repository's conftest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.plain_environment import plain_environment
from tests.waiting import PATIENCE_S


def run_pytest(folder: Path, *options: str) -> tuple[int, str]:
    """Run the tests in `folder`/tests; return the exit code and all that was printed."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", *options, "tests"],
        cwd=folder,
        env=plain_environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return ended.returncode, ended.stdout
