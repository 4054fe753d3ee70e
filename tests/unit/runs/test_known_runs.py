"""`runs` counts a run's age and cost by its box's clock, however long ago that was asked."""

from __future__ import annotations

import dataclasses

import pytest

from bootstrap.boxes import at_home
from bootstrap.boxes.at_home import note_seen, seen_on
from bootstrap.link.record import KnownBox, save_box
from bootstrap.protocol.run import Run
from bootstrap.runs.known_runs import ListedRun, run_rows

RUN = Run(
    "homework-1", "train-1", "finished", 0, 1_000, "c" * 40, "w", "train", 0, 9, "python x",
    snapshot="a1b2c3d" + "0" * 33, begun=1_000, over=4_600,
)  # fmt: skip


def test_its_age_is_right_after_contacts_that_changed_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The box's clock is 100 s ahead, and it was asked at 4600 and at 9000 of this machine's."""
    box = save_box(KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1", price=2.0, seen=4_600.0))
    monkeypatch.setattr(at_home, "time", type("Clock", (), {"time": lambda: 4_600.0}))
    note_seen(box, [RUN], str, box_time=4_700)
    (kept,) = seen_on(dataclasses.replace(box, seen=9_000.0))
    assert (kept.seen, kept.box_time) == (9_000.0, 9_100)
    listed = ListedRun(kept, is_gone=False, results="none", log="box")
    row = " ".join(run_rows([listed], 9_050.0, None, every=False)[0].split())
    assert "train-1 gpu 2 h 16 min ago finished, ran 1 h 00 min, $2.00" in row
    assert f"{'c' * 12}+a1b2c3d" in row
    assert listed.as_dict()["dollars"] == 2.0
