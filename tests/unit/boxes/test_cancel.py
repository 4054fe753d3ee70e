"""What is made beside a task ends, whatever there is to compute."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from bootstrap.boxes import Run
from bootstrap.boxes.at_home import RunAtHome
from bootstrap.errors import BoxstrapError
from bootstrap.link import made_beside
from bootstrap.runs import bring_home, report
from tests.waiting import wait_until


def for_ever(*_: object) -> str:
    while True:
        time.sleep(0)


def test_a_report_page_that_takes_too_long_or_crashes_gives_an_error() -> None:
    assert made_beside(lambda: "page", 20) == "page"
    failed = made_beside(lambda: str(1 // 0), 20)
    assert isinstance(failed, BoxstrapError)
    assert "ZeroDivisionError" in failed.what
    before = threading.active_count()
    late = made_beside(for_ever, 0.1)
    assert isinstance(late, BoxstrapError)
    assert late.what == "it did not finish within 0.1 s"
    wait_until(lambda: threading.active_count() <= before)  # and computes no longer


def test_a_run_comes_home_with_a_warning_if_its_report_page_never_finishes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warned: list[str] = []
    box: Any = SimpleNamespace(
        redactor=SimpleNamespace(text=str, secrets={}), reporter=SimpleNamespace(warn=warned.append)
    )
    monkeypatch.setattr(report, "report_page", for_ever)
    monkeypatch.setattr(report, "report_at_home", lambda *_: None)
    monkeypatch.setattr(bring_home, "_PAGE_S", 0.1)
    run = Run("k-1", "train-1", "finished", 0, 1, "c" * 40, "w", "train", 0, 12, "python x")
    nothing: Any = None
    bringing = bring_home._Bringing(box, 1)
    bringing._put_page(nothing, RunAtHome("gpu", 1.0, "vast:1", run), nothing)
    assert warned == ["no report of train-1 was made: it did not finish within 0.1 s"]
