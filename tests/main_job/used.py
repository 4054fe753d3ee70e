"""A box that was set up before, for another repository: it has our tools, and was checked.

It is made once for each kind, and boxes start with its file system. Tests of later steps take
such a box, because the steps up to `gpu` take half of the time of a first setup.
"""

import re
from pathlib import Path
from typing import Any

from tests.boxes import Rig, RigBox
from tests.boxes.places import locked
from tests.cli import User
from tests.main_job.rented import Rented

_FORGET = """
cd "$(readlink -f ~/.boxstrap)"
rm -rf lock setup.sh runs setups store steps/*/ ../earlier /tmp/tmux-*
"""


def start_used(rig: Rig, kind: str, place: Path, **variant: Any) -> RigBox:
    """Start such a box; its file system is made once and kept in `place`, which all tests share."""
    layer = place / f"used-{kind}"
    with locked(place / f"{layer.name}.lock"):
        if not layer.exists():
            _make(rig, kind, layer)
    box = rig.start(kind, on=layer, **variant)
    _seem_up_since(box)
    return box


def _make(rig: Rig, kind: str, layer: Path) -> None:
    rented = Rented(User(layer.with_name(f"{layer.name}-home")), rig.start(kind))
    rented.user.repository("earlier")
    rented.run("setup").must(0)
    rented.as_user(_FORGET)
    rented.box.keep(layer)
    rented.box.stop()


def _seem_up_since(box: RigBox) -> None:
    """Make the box look up since its last setup, so that what that found of its GPU holds."""
    started = (box.root.parent / "stat").read_text().rpartition(") ")[2].split()[19]
    folder = box.root / f"{box.home}/.boxstrap"[1:]
    if folder.is_symlink():
        folder = box.root / f"{folder.readlink()}"[1:]
    stamp = folder / "steps/gpu.ok"
    text, found = re.subn(r" 1\\ \d+", rf" 1\\ {started}", stamp.read_text())
    assert found, text
    stamp.write_text(text)
