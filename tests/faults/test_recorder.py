"""The recorder: what a test records becomes a row, also with workers."""

import re
import sys
from pathlib import Path

from tests.faults.table import FAILED, FaultRow, Try, lines, rows
from tests.plain_environment import HERE
from tests.programs import captured

TESTS = """\
import pytest, random

def test_that_notices_its_fault_in_time(faults):
    for seconds in (1, 9, 2):
        with faults.attempt("link cut") as attempt:
            attempt.noticed(seconds, at_most=20)

def test_that_fails_during_its_fault(faults):
    with faults.attempt("link cut", at="python"):
        assert False

def test_that_fails_after_its_fault(faults):
    with faults.attempt("disk full"):
        pass
    assert False

def test_that_notices_its_fault_too_late(faults):
    with faults.attempt("slow") as attempt:
        attempt.noticed(21, at_most=0)

@pytest.fixture
def broken():
    raise OSError

def test_whose_fixture_fails_before_its_fault(faults, broken):
    pass

@pytest.mark.skip(reason="no root")
def test_that_is_skipped_without_root(faults):
    pass

def test_that_draws_a_number_by_the_seed(seeded, faults):
    with faults.attempt("chance") as attempt:
        attempt.outcome(f"drew {seeded.randrange(10 ** 9)}")

@pytest.mark.sampled
@pytest.mark.parametrize("case", range(37))
def test_of_37_cases(case):
    pass
"""

PLUGINS = ("-p", "xdist", "-p", "tests.faults.plugin")
NO_OTHERS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # they take most of the start-up time


def recorded(folder: Path, *options: str) -> str:
    (folder / "test_inner.py").write_text(TESTS)
    done = captured(
        [sys.executable, "-m", "pytest", *PLUGINS, "-q", *options],
        cwd=folder,
        env={"PYTHONPATH": str(HERE), "PATH": "/usr/bin:/bin", **NO_OTHERS},
        check=False,
    )
    return done.stdout


def test_the_same_seed_gives_the_same_table_of_faults_with_one_or_several_test_workers(
    tmp_path: Path,
) -> None:
    def chosen(out: str) -> tuple[list[str], set[str]]:
        return re.findall(r"drew \d+", out), set(re.findall(r"test_of_37_cases\[\d+\]", out))

    over_workers = recorded(tmp_path, "-n", "2", "-vv")
    (seed,) = re.findall(r"^seed: (\d+)", over_workers, re.M)
    alone = recorded(tmp_path, "-n", "0", "-vv", "--seed", seed)
    for out in (over_workers, alone):
        table = out[out.index(" faults ") :]
        assert re.search(r"^link cut +4  FAILED 1 of 4 \(python\)  2.0 s, 9.0 s$", table, re.M), out
        assert re.search(r"^disk full +1  FAILED 1 of 1 +-$", table, re.M)
        assert re.search(r"^slow +1  FAILED 1 of 1 +21.0 s$", table, re.M)
        assert "tests of this table failed before the first try: 1" in table
        assert "tests of this table left out: 1" in table
    assert chosen(over_workers) == chosen(alone)
    assert len(chosen(alone)[1]) == 4  # the first, and a twelfth of the others
    every = chosen(recorded(tmp_path, "-vv", "--every", "--seed", f"{int(seed) + 1}"))
    assert len(every[1]) == 37
    assert every[0] != chosen(alone)[0]


def test_the_test_reports_table_of_faults_is_aligned_and_sorted_by_name() -> None:
    table = rows([Try("b", outcome="exit 4"), Try("a long one", noticed_s=3.14), Try("b", "x")])
    assert table == [FaultRow("a long one", 1, "held", (3.14,)), FaultRow("b", 2, "exit 4, held")]
    assert lines(table) == [
        "fault       tries  outcome       time to notice (median, worst)",
        "a long one      1  held          3.1 s",
        "b               2  exit 4, held  -",
    ]
    assert rows([Try("b", "x", FAILED)])[0].outcome == "FAILED 1 of 1 (x)"
