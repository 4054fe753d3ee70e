"""`make demo-rent`: all commands really run, and nothing is left."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.providers import demo

pytestmark = [pytest.mark.boxes, pytest.mark.sampled(of="module")]


def test_the_demo_rents_trains_and_gives_back(
    mirror_rig: Rig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rented, destroyed = demo.show(mirror_rig, tmp_path / "home")
    assert rented == destroyed == ["9001"]
    typed, printed = zip(*_sections(capfd.readouterr().out), strict=True)
    assert typed == demo.TYPED
    names = ("offers", "up", "wait", "lease", "rented", "down", "result", "left")
    told = dict(zip(names, printed, strict=True))
    assert "Sweden, SE" in told["offers"]
    assert "run train-1: running" in told["up"]
    assert re.search(r"lease: (1 d 0 h|23 h 5\d min) left; held by the box", told["up"])
    assert "train-1 finished" in told["wait"]
    assert "lease: 1 d 2 h left; held by the box" in told["lease"]
    assert "known as vast-9001" in told["rented"]
    assert "destroyed, and no longer listed" in told["down"]
    assert told["result"].startswith("y = ")
    assert "nothing is rented" in told["left"]


def test_a_run_rents_its_box_only_where_the_repository_has_none(
    mirror_rig: Rig, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = "boxstrap run --up --max-price 0.60 -- python train.py"
    typed = (run, "boxstrap wait", run, "boxstrap wait", "boxstrap boxes", "boxstrap down")
    rented, destroyed = demo.show(mirror_rig, tmp_path / "home", typed)
    assert rented == destroyed == ["9001"]
    printed = [text for _, text in _sections(capfd.readouterr().out)]
    assert "train-1" in printed[0]
    assert "train-1 finished" in printed[1]
    assert "train-2" in printed[2]
    assert "train-2 finished" in printed[3]
    assert "vast-9001" in printed[4]


def _sections(text: str) -> list[tuple[str, str]]:
    """Each command, and what it printed on standard output."""
    parts = text.split("\n$ ")[1:]
    return [(command, printed) for command, _, printed in (part.partition("\n") for part in parts)]
