"""The second try of `make test` takes few tests that start programs, and names what was red."""

import os
from pathlib import Path

import pytest

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
    file = tmp_path_factory.mktemp("tests") / "test_them.py"
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
        ("unit", 4, "1 tests failed, 1 of them start no program"),
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
