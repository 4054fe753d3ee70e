"""The programs of a box, beside each other as they lie there."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from bootstrap.render.parts import box_files
from tests.plain_environment import shared


def lay_programs(folder: Path) -> Path:
    """All of them, into `folder`, which is made where it isn't there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in box_files():
        (folder / name).write_text(f"{text}\n")
    return folder


def program(name: str) -> Path:
    """The one of this name, to be run: nothing is written where it lies."""
    return _laid() / name


@cache
def _laid() -> Path:
    return lay_programs(shared() / "box")
