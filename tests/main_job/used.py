"""A box that was set up before, for another repository: our own tools are on it, and looked at.

It is made once for each kind; the boxes begin with its file system. A test whose subject comes
after them takes such a box: the steps up to `gpu` take half of what a first setup takes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.boxes import Box, Rig
from tests.boxes.places import locked
from tests.cli import User
from tests.main_job.rented import Rented

_FORGET = """
cd "$(readlink -f ~/.boxstrap)"
rm -rf lock setup.sh runs setups store steps/*/ ../earlier /tmp/tmux-*
"""


def start_used(rig: Rig, kind: str, place: Path, by: Path | None = None, **variant: Any) -> Box:
    """Start a box like that; what it begins with is made and kept in `place`, which all share.

    `by`: it was the program of this folder that set it up, an earlier one.
    """
    layer = place / f"used-{kind}{f'-{by.name}' if by else ''}"
    with locked(place / f"{layer.name}.lock"):
        if not layer.exists():
            _make(rig, kind, layer, {"PYTHONPATH": str(by)} if by else {})
    box = rig.start(kind, on=layer, **variant)
    _seem_up_since(box)
    return box


def _make(rig: Rig, kind: str, layer: Path, program: dict[str, str]) -> None:
    rented = Rented(User(layer.with_name(f"{layer.name}-home")), rig.start(kind))
    rented.user.repository("earlier")
    rented.run("setup", **program).must(0)
    rented.as_user(_FORGET)
    rented.box.keep(layer)
    rented.box.stop()


def _seem_up_since(box: Box) -> None:
    """To its last setup it was up all the time: what that one said of its GPU holds."""
    started = (box.root.parent / "stat").read_text().rpartition(") ")[2].split()[19]
    folder = box.root / f"{box.home}/.boxstrap"[1:]
    if folder.is_symlink():
        folder = box.root / f"{folder.readlink()}"[1:]
    stamp = folder / "steps/gpu.ok"
    text, found = re.subn(r" 1\\ \d+", rf" 1\\ {started}", stamp.read_text())
    assert found, text
    stamp.write_text(text)
