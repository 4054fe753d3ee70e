"""Stopping several runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.protocol.run import Run
from bootstrap.runs import run_end


def test_what_waits_for_its_turn_is_ended_before_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
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
