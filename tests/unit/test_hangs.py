"""A test that nothing else would end is ended, named once, and shown with what it waited for."""

from __future__ import annotations

from pathlib import Path

from tests.inner_pytest import run_pytest

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
    _, told = run_pytest(tmp_path, "-p", "no:cacheprovider", "--hang-after", "1", "-n", "2")
    assert "3 failed, 2 passed" in told, told
    for name in ("test_waits_for_a_process", "test_fails_and_hangs_then"):
        # At once and among the failures; the summary cuts the line.
        assert told.count(f"crashed while running 'tests/test_hanging.py::{name}'") == 2, told
    assert "s: 'sleep 20'" in told
