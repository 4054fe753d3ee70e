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


def cache() -> Path:
    """The folder of layers, downloads and the overlays of live boxes.

    `BOXSTRAP_RIG_CACHE`, else `~/.cache/boxstrap-rig`. It must lie on a file
    system that can carry an overlay (ext4, xfs, btrfs, tmpfs).
    """
    chosen = os.environ.get("BOXSTRAP_RIG_CACHE")
    folder = Path(chosen) if chosen else Path.home() / ".cache" / "boxstrap-rig"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


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
