"""The second try of `make test`, and a test that hangs: it ends its worker alone."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.plain_environment import HERE
from tests.programs import captured

TESTS = """
import pathlib, pytest

once = pathlib.Path("once")

@pytest.fixture
def again():
    yield once.exists()
    once.touch()

def test_unit_that_starts_no_program(): assert False

@pytest.mark.slow
def test_that_is_once_red(again): assert again

@pytest.mark.boxes
def test_that_fails_and_is_then_skipped(again):
    if again: pytest.skip()
    assert False

@pytest.mark.boxes
@pytest.mark.parametrize("number", range(4))
def test_that_is_red_each_time(number): assert False
"""


@pytest.fixture(scope="module")
def tests(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file for all cases: this process imports it once."""
    file = tmp_path_factory.mktemp("of") / "tests/unit/test_them.py"
    file.parent.mkdir(parents=True)
    file.write_text(TESTS)
    return str(file)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chosen", "code", "said"),
    [
        ("once_red", 0, "red beside others"),
        ("then_skipped", 1, "it went red and is left out now"),
        ("red and 1", 1, "1 failed"),
        ("red and not once", 4, "4 tests failed, 0 of them start no program"),
        ("no_program", 4, "1 tests failed, 1 of them start no program"),
    ],
)
def test_a_second_pytest_run_repeats_a_few_failed_tests_that_start_programs(
    tmp_path: Path,
    tests: str,
    chosen: str,
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    own = dict(os.environ)
    for options, ended in (
        (("-k", chosen), 1),
        (("--last-failed", "--last-failed-no-failures", "none", "--second-try"), code),
    ):
        words = ["-p", "tests.second_try", "-p", "no:faulthandler", "--rootdir=.", *options, tests]
        assert pytest.main(words) == ended
        os.environ.update(own)  # also the name of the running test
    told = "".join(capfd.readouterr())
    assert said in told


HANGING = """
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
    (tmp_path / "test_them.py").write_text(HANGING)
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
