"""The programs of a box, in one folder as on the box."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from bootstrap.shell import box_files
from tests.plain_environment import shared


def lay_programs(folder: Path) -> Path:
    """Write all of them into `folder`, which is created if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in box_files():
        (folder / name).write_text(f"{text}\n")
    return folder


def program(name: str) -> Path:
    """Return the path of one program, to be run; don't write into its folder."""
    return _laid() / name


@cache
def _laid() -> Path:
    return lay_programs(shared() / "box")
