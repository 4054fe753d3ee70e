"""Who owns a path: files of another user of this machine are not trusted."""

from __future__ import annotations

import os
from pathlib import Path


def of_another(path: Path) -> bool:
    """Whether `path` belongs to another user than the one who runs this.

    As git decides it: a link counts as itself, and under sudo the calling user (`SUDO_UID`)
    is the same as root. A path that can't be inspected counts as another user's.
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
