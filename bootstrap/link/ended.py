"""Records of boxes that were given back, kept apart with their receipts and what they cost."""

from __future__ import annotations

import time
from pathlib import Path

from bootstrap import paths
from bootstrap.link.record import KnownBox, read_box, save


def retire(box: KnownBox) -> Path | None:
    """Move the record and receipts of a box that is gone aside, without its pin.

    This frees its name. Returns the new folder, or None if another command did it already (another
    box may have the name by then). Raises OSError, and as `refuse_newer`.
    """
    kept = read_box(box.folder)
    if kept is None or (kept.host_text, kept.created) != (box.host_text, box.created):
        return None
    aside = ended_folder() / f"{box.folder.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    aside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        save(box, is_new=False)
        box.folder.rename(aside)
    except FileNotFoundError:
        return None
    (aside / "known_hosts").unlink(missing_ok=True)
    return aside


def ended_folder() -> Path:
    """Return the folder with the records of boxes that are gone."""
    return paths.state_dir() / "ended"


def ended_boxes() -> list[KnownBox]:
    """List the boxes that were given back, the last one first."""
    boxes = [read_box(folder) for folder in ended_folder().glob("*/")]
    return sorted((box for box in boxes if box), key=lambda box: box.ended, reverse=True)
