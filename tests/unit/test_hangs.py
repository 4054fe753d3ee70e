"""A test that nothing else would end is ended, named once, and shown with what it waited for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.plain_environment import plain_environment
from tests.waiting import PATIENCE_S

HANGING = """
import subprocess, time

def test_before(): pass

def test_waits_for_a_process():
    with subprocess.Popen(["sleep", "20"]):
        pass

def test_fails_and_hangs_then(request):
    request.addfinalizer(lambda: time.sleep(20))
    assert False

def test_after(): pass
"""


def test_what_hangs_ends_and_is_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_hanging.py").write_text(HANGING)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "--hang-after", "1", "-n", "2"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests"],
        cwd=tmp_path,
        env=plain_environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    told = ended.stdout
    assert "3 failed, 2 passed" in told, told + ended.stderr
    for name in ("test_waits_for_a_process", "test_fails_and_hangs_then"):
        # At once and among the failures; the summary cuts the line.
        assert told.count(f"crashed while running 'tests/test_hanging.py::{name}'") == 2, told
    assert "s: 'sleep 20'" in told
