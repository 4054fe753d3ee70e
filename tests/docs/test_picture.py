"""The README's picture shows what the program prints today."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from bootstrap.plan import steps_for
from bootstrap.profile.load import read_profile
from bootstrap.protocol.run import Run
from bootstrap.tasks.setup_report import next_steps
from tests.boxes import Rig
from tests.docs import picture

SVG = "{http://www.w3.org/2000/svg}"
RECORDING = picture.read()
FOLDER = "/workspace/homework"


def test_it_is_drawn_from_the_recording() -> None:
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.drawn(RECORDING), "make docs"


def test_it_shows_every_line_that_was_printed() -> None:
    texts = ElementTree.parse(picture.PICTURE).getroot().iter(f"{SVG}text")
    shown = [(text.text or "").replace("\xa0", " ") for text in texts]
    printed = [line for line in RECORDING.output.splitlines() if line.strip()]
    assert shown[0] == f"$ {RECORDING.command}"
    assert shown[-len(printed) :] == printed


def test_its_steps_are_those_of_a_setup() -> None:
    recorded = {event.step for event in RECORDING.parsed()}
    profile = read_profile("ssh", sets=("train.command=python train.py", "gpu.smoke=none")).profile
    assert recorded == {step.name for step in steps_for(profile, local=False)} | {"setup"}


def test_its_recommended_lines_are_those_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Word for word, with the same box, run and profile as in the recording."""
    monkeypatch.setattr("sys.argv", ["boxstrap"])
    profile = tmp_path / "boxstrap.yaml"
    profile.write_text(picture.PROFILE + "extends: vast\n", encoding="utf-8")
    box: Any = SimpleNamespace(
        options=SimpleNamespace(repo=None),
        known=SimpleNamespace(is_billed=True),
        is_local=False,
        endpoint=SimpleNamespace(alias=picture.NAME, hostname=picture.NAME),
    )
    result: Any = SimpleNamespace(
        box=picture.NAME,
        alias=picture.NAME,
        repo_dir=FOLDER,
        run=Run("homework", "train-1", "running", None, 0, "", "", "", 0, 0, ""),
        login=box,
        profile=read_profile(str(profile)).profile,
        price=None,
        box_state=SimpleNamespace(home="/workspace/.boxstrap", has_tmux=True),
        made_nothing=False,
    )
    assert next_steps(result) in RECORDING.output, "make picture"


@pytest.mark.boxes
def test_a_setup_of_today_prints_the_same(mirror_rig: Rig, tmp_path: Path) -> None:
    """Except for numbers, and for how many lines the training has printed by then."""
    today = picture.record(mirror_rig, tmp_path / "home")
    assert _words(today.command) == _words(RECORDING.command)
    assert _words(today.output) == _words(RECORDING.output), "make picture"


def _words(text: str) -> list[str]:
    lines = [re.sub(r"[0-9.]+", "N", line) for line in text.splitlines()]
    return [line for line in lines if not line.startswith("  step ")]
