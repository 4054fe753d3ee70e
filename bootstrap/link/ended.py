"""Records of boxes that were given back: aside, with their receipts and what they cost."""

from __future__ import annotations

import time
from pathlib import Path

from bootstrap import paths
from bootstrap.link.record import KnownBox, read_box, save


def retire(box: KnownBox) -> Path | None:
    """Put what is known of a box that is gone aside, its receipts too, without its pin.

    Its name is free then. The folder that it lies in; None where another command did that already,
    and another box may have the name. Raises OSError, and as `refuse_newer`.
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
    """Where the records of boxes lie that are gone."""
    return paths.state_dir() / "ended"


def ended_boxes() -> list[KnownBox]:
    """Those that were given back, the last one first."""
    boxes = [read_box(folder) for folder in ended_folder().glob("*/")]
    return sorted((box for box in boxes if box), key=lambda box: box.ended, reverse=True)
