"""The README's picture shows what the program prints today."""

import re
from pathlib import Path

from tests.boxes import Rig
from tools.docs import picture

RECORDING = picture.read()


def test_the_picture_of_the_readme_is_drawn_from_the_recorded_setup() -> None:
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.drawn(RECORDING), "make docs"


def test_setup_prints_the_words_of_the_readme_picture(mirror_rig: Rig, tmp_path: Path) -> None:
    """Except for numbers, and for how many lines the training has printed by then."""
    today = picture.record(mirror_rig, tmp_path / "home")
    assert _words(today.command) == _words(RECORDING.command)
    assert _words(today.output) == _words(RECORDING.output), "make picture"


def _words(text: str) -> list[str]:
    lines = [re.sub(r"[0-9.]+", "N", line) for line in text.splitlines()]
    return [line for line in lines if not line.startswith("  step ")]
