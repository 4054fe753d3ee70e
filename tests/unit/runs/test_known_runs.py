"""`runs` counts a run's age and cost by its box's clock, however long ago that was asked."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bootstrap.boxes import at_home
from bootstrap.boxes.at_home import RunAtHome, note_seen, seen_on
from bootstrap.link.record import KnownBox, save_box
from bootstrap.link.target import BoxOptions, parse_host, resolve
from bootstrap.link.wire import not_found
from bootstrap.protocol.run import Run
from bootstrap.runs import status
from bootstrap.runs.known_runs import ListedRun, known_on, run_rows
from bootstrap.text.document import document

RUN = Run(
    "homework-1", "train-1", "finished", 0, 1_000, "c" * 40, "w", "train", 0, 9, "python x",
    snapshot="a1b2c3d" + "0" * 33, begun=1_000, over=4_600,
)  # fmt: skip


@pytest.mark.parametrize(
    ("login", "seen"),
    [
        pytest.param(9_000.0, 9_000.0, id="contacts that changed nothing"),
        pytest.param(4_570.0, 4_600.0, id="one over a connection that stayed open"),
    ],
)
def test_its_age_is_right_after(login: float, seen: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The box's clock is 100 s ahead; it told at 4600 of this machine's, and was met at `login`."""
    box = save_box(KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1", price=2.0, seen=4_600.0))
    monkeypatch.setattr(at_home, "time", type("Clock", (), {"time": lambda: 4_600.0}))
    note_seen(box, [RUN], str, box_time=4_700)
    (kept,) = seen_on(dataclasses.replace(box, seen=login))
    assert (kept.seen, kept.box_time) == (seen, seen + 100)
    listed = ListedRun(kept, is_gone=False, results="none", log="box")
    row = " ".join(run_rows([listed], 9_050.0, None, every=False)[0].split())
    assert "train-1 gpu 2 h 16 min ago finished, ran 1 h 00 min, $2.00" in row
    assert f"{'c' * 12}+a1b2c3d" in row
    assert document(listed)["dollars"] == 2.0


def test_what_is_known_of_a_box_out_of_reach_has_the_live_run_and_ages_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`runs` and `status` tell the same begin, by the same clock; no older metric beside it."""
    clock = type("Clock", (), {"time": lambda: 9_000.0})
    for module in (at_home, status):
        monkeypatch.setattr(module, "time", clock)
    box = save_box(KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1", seen=9_000.0))
    live = dataclasses.replace(RUN, name="train-2", state="running", begun=8_700, over=0)
    note_seen(box, [live, RUN], str, box_time=9_000)
    home = RunAtHome(box.name, box.created, box.host_text, live, seen=8_900.0, metric="loss 2.3")
    at_home._folder().mkdir(parents=True)
    home.save()
    dataclasses.replace(home, run=dataclasses.replace(live, name="train-0")).save()
    clock.time = lambda: 9_300.0
    told = "\n".join(status._from_home(BoxOptions("gpu", repo=tmp_path), "it is gone.", None).lines)
    assert "gpu: it is gone; from home:" in told
    assert "train-2  running, as of 5 min 00 s ago  started 10 min 00 s ago" in told
    assert "train-0  running, as of 6 min 40 s ago  started 10 min 00 s ago" in told
    assert told.count("loss 2.3") == 1  # train-0's: what was told later of train-2 has none
    listed = ListedRun(known_on(box)[0], is_gone=False, results="box", log="box")
    assert "train-2  gpu  10 min 00 s ago" in run_rows([listed], 9_300.0, None, every=False)[0]


def test_a_run_that_came_home_as_over_is_not_running_on_its_box(tmp_path: Path) -> None:
    box = save_box(KnownBox("gpu", "root@203.0.113.1:22", "203.0.113.1", seen=9_000.0))
    note_seen(box, [dataclasses.replace(RUN, state="running", over=0)], str, box_time=9_000)
    over = RunAtHome(box.name, box.created, box.host_text, RUN, seen=9_100.0, place=str(tmp_path))
    at_home._folder().mkdir(parents=True)
    over.save()
    assert [one.run.state for one in known_on(box)] == ["finished"]


def test_a_host_that_is_not_found_names_the_known_box_of_nearly_that_name() -> None:
    save_box(KnownBox("nina1", "root@203.0.113.1:22", "203.0.113.1"))
    assert "Did you mean nina1?" in str(not_found(resolve(parse_host("nina9"))).hint)
    assert "Did you mean" not in str(not_found(resolve(parse_host("gpu.invalid"))).hint)
