"""Whose a path is: what belongs to another user of this machine is not obeyed."""

from __future__ import annotations

import os
from pathlib import Path


def of_another(path: Path) -> bool:
    """Whether `path` belongs to somebody else than the person who runs this.

    As git judges it: a link counts as itself, and under sudo the person who called it
    (`SUDO_UID`) is the same as root. What can't be looked at is somebody else's.
    """
    if not hasattr(os, "geteuid"):
        return False
    try:
        owner = path.lstat().st_uid
    except OSError:
        return True
    return owner not in _own_ids()


def _own_ids() -> set[int]:
    ids = {os.geteuid()}
    caller = os.environ.get("SUDO_UID", "")
    if 0 in ids and caller.isascii() and caller.isdigit():
        ids.add(int(caller))
    return ids
