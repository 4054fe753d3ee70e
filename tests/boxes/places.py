"""Where the rig keeps things, all of them outside the repository."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"

#: Claims on subnets: machine-wide, since addresses are, and gone after a reboot.
CLAIMS = Path("/run/boxstrap-rig")

_MEMORY = Path("/dev/shm")
_PLENTY = 6 << 30


def cache() -> Path:
    """The folder of layers, downloads and the overlays of live boxes.

    `BOXSTRAP_RIG_CACHE`, else `~/.cache/boxstrap-rig`. It must lie on a file
    system that can carry an overlay (ext4, xfs, btrfs, tmpfs).
    """
    chosen = os.environ.get("BOXSTRAP_RIG_CACHE")
    folder = Path(chosen) if chosen else Path.home() / ".cache" / "boxstrap-rig"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def boxes() -> Path:
    """The folder of live boxes' overlays: memory where there is plenty, else the cache.

    `BOXSTRAP_RIG_BOXES` decides. In memory, a box is written and cleared away at
    the same speed whatever else this machine's disk has to do.
    """
    chosen = os.environ.get("BOXSTRAP_RIG_BOXES")
    if chosen:
        return Path(chosen).resolve()
    if _MEMORY.is_mount():
        state = os.statvfs(_MEMORY)
        if state.f_bavail * state.f_frsize >= _PLENTY:
            return _MEMORY / "boxstrap-rig"
    return cache() / "boxes"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, shared by every process of this machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
