"""Boxes looked at live, one of which tells without end."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from pathlib import Path

import pytest

from bootstrap.link.handle import BoxOptions
from bootstrap.protocol.samples import Sample
from bootstrap.runs import top
from bootstrap.runs.top import Feed, TopOptions, watch_boxes
from bootstrap.ui.top_view import BoxView

MANY = 100_000


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_what_nobody_has_drawn_yet_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However much faster a box tells than a screen draws: the newest look counts, and is shown."""
    queues: list[queue.Queue[BoxView]] = []
    longest = 0

    def run(feed: Feed) -> None:
        nonlocal longest
        queues.append(feed._changes)
        for number in range(MANY):
            feed._take(Sample(t=float(number)))
            longest = max(longest, feed._changes.qsize())

    class RecordingScreen:
        shown: float = -1.0

        def show(self, views: Sequence[BoxView], changed: BoxView | None) -> None:
            if changed is not None and changed.sample is not None:
                self.shown = changed.sample.t

        def close(self) -> None:
            assert queues[0].qsize() <= 1

    monkeypatch.setattr(top.Feed, "run", run)
    screen = RecordingScreen()
    watch_boxes(BoxOptions(), ["local"], TopOptions(samples=MANY), screen)
    assert longest == 1
    assert screen.shown >= 0
