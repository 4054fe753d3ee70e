"""Stopping several runs, and waiting for them."""

from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.boxes import Run
from bootstrap.runs import run_end


def test_stop_all_ends_queued_runs_first_so_that_none_starts_when_a_running_one_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it would start."""
    runs = [
        Run("homework", name, state, None, 0, "", "", "", 0, 0, "")
        for name, state in (("first", "running"), ("second", "queued"), ("third", "queued"))
    ]
    ended, said = list[str](), list[str]()

    def end(_: object, run: Run) -> run_end.StopAnswer:
        ended.append(run.name)
        return run.name != "third", []

    monkeypatch.setattr(run_end, "end_run", end)
    screen: Any = SimpleNamespace(note=lambda _, text: said.append(text))
    box: Any = None
    answers = run_end.end_runs(box, screen, runs)
    assert ended == ["second", "third", "first"]
    assert [(run.name, did) for run, (did, _) in answers] == [
        ("second", True),
        ("third", False),
        ("first", True),
    ]
    assert said == ["first: asked to end; if it hasn't after its `train.grace`, it is killed"]


def _cell(name: str, state: str, started: int, over: int = 0, rc: int | None = None) -> Run:
    work = name.rpartition("-")[0]
    return Run("k", name, state, rc, started, "", work, "", 0, 0, "", begun=started, over=over)


LIVE, FAILED = _cell("b-1", "running", 100), _cell("a-1", "finished", 100, 103, 1)
AGAIN, OLD = _cell("a-2", "queued", 110), _cell("o-1", "finished", 50, 99, 1)
DONE, STOPPED = _cell("d-1", "finished", 100, 120, 0), _cell("s-1", "finished", 100, 110, 143)


@pytest.mark.parametrize(
    ("runs", "awaited"),
    [
        ([LIVE, FAILED, OLD], [LIVE, FAILED]),
        ([AGAIN, LIVE, FAILED], [AGAIN, LIVE]),
        ([DONE, FAILED, OLD], [FAILED]),
        ([DONE, STOPPED, OLD], []),
        ([], []),
    ],
)
def test_wait_all_awaits_live_runs_and_reports_sweep_cells_that_failed(
    runs: list[Run], awaited: list[Run]
) -> None:
    assert run_end.all_awaited(runs) == awaited
