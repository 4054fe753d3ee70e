"""A test that hangs ends its worker alone; what was to follow it runs on another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.plain_environment import HERE

TESTS = """
import time

def test_that_passes_before_the_hanging_test(): pass

def test_that_hangs_for_ten_minutes(): time.sleep(600)

def test_that_passes_after_the_hanging_test(): pass
"""


@pytest.mark.slow
def test_a_hanging_test_is_reported_as_failed_and_other_tests_still_run(tmp_path: Path) -> None:
    """With one test left for it, what replaced a worker waited for another one, for ever."""
    (tmp_path / "test_them.py").write_text(TESTS)
    words = ["-p", "tests.conftest", "-n", "1", "--hang-after", "2", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *words, str(tmp_path)],
        cwd=HERE,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "while running 'test_them.py::test_that_hangs_for_ten_minutes'" in done.stdout
    assert "1 failed, 2 passed" in done.stdout
