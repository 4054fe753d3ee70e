"""Where the rig keeps its files, outside the repository."""

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
    """Return the folder of layers, downloads and the overlays of live boxes.

    `BOXSTRAP_RIG_CACHE`, else `~/.cache/boxstrap-rig`. It must be on a file
    system that supports overlays (ext4, xfs, btrfs, tmpfs).
    """
    chosen = os.environ.get("BOXSTRAP_RIG_CACHE")
    folder = Path(chosen) if chosen else Path.home() / ".cache" / "boxstrap-rig"
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def boxes() -> Path:
    """Return the folder of live boxes' overlays: in memory if there is plenty, else in the cache.

    `BOXSTRAP_RIG_BOXES` overrides it. In memory, the speed of a box doesn't depend on
    what else uses this machine's disk.
    """
    chosen = os.environ.get("BOXSTRAP_RIG_BOXES")
    if chosen:
        return Path(chosen).resolve()
    room = memory()
    return room / "boxstrap-rig" if room else cache() / "boxes"


def memory() -> Path | None:
    """Return a folder in memory, if there is plenty of it."""
    if _MEMORY.is_mount():
        state = os.statvfs(_MEMORY)
        if state.f_bavail * state.f_frsize >= _PLENTY:
            return _MEMORY
    return None


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
