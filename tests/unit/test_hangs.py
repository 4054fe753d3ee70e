"""A test that hangs ends its worker alone; what was to follow it runs on another."""

import re
import sys
from pathlib import Path

import pytest

from tests.plain_environment import HERE
from tests.programs import captured

TESTS = """
import time
import pytest

@pytest.fixture
def hangs_at_its_end():
    yield
    time.sleep(600)

def test_that_passes_before_the_hanging_test(): pass

def test_that_hangs_for_ten_minutes(): time.sleep(600)

def test_that_fails_and_hangs_at_its_end(hangs_at_its_end): assert False

def test_that_passes_after_the_hanging_test(): pass
"""


@pytest.mark.slow
def test_a_hanging_test_is_reported_as_failed_and_other_tests_still_run(tmp_path: Path) -> None:
    """With one test left for it, what replaced a worker waited for another one, for ever."""
    (tmp_path / "test_them.py").write_text(TESTS)
    limit = ("-o", "faulthandler_timeout=2", "-o", "faulthandler_exit_on_timeout=true")
    words = ["-p", "tests.conftest", "-n", "1", *limit, "--rootdir", str(tmp_path)]
    done = captured(
        [sys.executable, "-m", "pytest", "-q", *words, str(tmp_path)],
        cwd=HERE,
        check=False,
        timeout=120,
    )
    hangs = {
        "test_that_hangs_for_ten_minutes": "test_that_hangs_for_ten_minutes",
        "test_that_fails_and_hangs_at_its_end": "hangs_at_its_end",
    }
    for test, function in hangs.items():
        assert f"while running 'test_them.py::{test}'" in done.stdout
        assert re.search(rf'test_them.py", line \d+ in {function}\n', done.stderr)
    assert "3 failed, 2 passed" in done.stdout
