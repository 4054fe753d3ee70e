"""The second try of `make test` takes few tests, each with a box, and shows which were red once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inner_pytest import run_pytest

TESTS = """
import pathlib, pytest

once = pathlib.Path(__file__).with_suffix(".once")

@pytest.fixture
def again():
    yield once.exists()
    once.touch()

def test_unit(): assert False

@pytest.mark.boxes
def test_once_red(again): assert again

@pytest.mark.boxes
def test_then_skipped(again):
    if again: pytest.skip()
    assert False

@pytest.mark.boxes
@pytest.mark.parametrize("number", range(4))
def test_red(number): assert False
"""


@pytest.mark.parametrize(
    ("chosen", "code", "said"),
    [
        ("once_red", 0, "red beside others"),
        ("then_skipped", 1, "it went red and is left out now"),
        ("red and 1", 1, "1 failed"),
        ("red and not once", 4, "4 tests failed, 0 of them without a box"),
        ("unit", 4, "1 tests failed, 1 of them without a box"),
    ],
)
def test_little_that_needs_a_box_gets_a_second_try(
    tmp_path: Path, chosen: str, code: int, said: str
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_them.py").write_text(TESTS)
    assert run_pytest(tmp_path, "-k", chosen)[0] == 1
    ended, told = run_pytest(
        tmp_path, "--last-failed", "--last-failed-no-failures", "none", "--second-try"
    )
    assert (ended, said in told) == (code, True), told
