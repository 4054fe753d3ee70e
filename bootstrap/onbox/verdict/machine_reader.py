"""Read the machine around the GPUs, in a process of its own: a disk can hang as well.

Writes lines as described in `readers.py`; null is a value that this system does not have. It
changes nothing, except if it `writes`: then it measures the disk's speed with a file that has no
name.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from pathlib import Path

from .. import machine_limits
from .readers import emit, emit_reading

ENOUGH = 0.12  # seconds that a block must take to give a reliable speed
SMALLEST, LARGEST = 256 * 1024, 16 * 1024**2  # bytes of a block
FREE_SPACE_DIVISOR = 16  # a block is at most 1/16 of the free space


def cpus(root: Path) -> dict[str, float]:
    """Return the cores that this process may use, and those of the machine."""
    machine = os.cpu_count() or 1
    affinity = getattr(os, "sched_getaffinity", None)  # macOS has none
    own = len(affinity(0)) if affinity else machine
    limits = [machine, own, machine_limits.cpuset(root), machine_limits.cpu_quota(root)]
    return {"granted": round(machine_limits.least(limits) or machine, 2), "machine": machine}


def ram(root: Path) -> dict[str, int]:
    """Return the bytes of memory that this container may use, and those of the machine."""
    machine = memory(root)
    return {
        "granted": min(machine, machine_limits.memory_limit(root) or machine),
        "machine": machine,
    }


def memory(root: Path) -> int:
    """Return the machine's memory in bytes. psutil, slow to import, is for other systems only."""
    found = re.search(r"^MemTotal: +(\d+) kB", machine_limits.read(root / "proc/meminfo"), re.M)
    if found:
        return int(found[1]) * 1024
    import psutil

    return int(psutil.virtual_memory().total)


def shm(root: Path) -> int | None:
    """Return the bytes of /dev/shm; 0 if Linux has none, None on other systems."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        found = os.statvfs(root / "dev/shm")
    except OSError:
        return 0
    return found.f_blocks * found.f_frsize


def disk(workdir: Path) -> int:
    """Return the bytes that are free for this user where the working folder is."""
    found = os.statvfs(existing(workdir))
    return found.f_bavail * found.f_frsize


def existing(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def disk_speed(workdir: Path) -> float | None:
    """Measure megabytes a second, synced; None if there is no room to try. Takes about 0.3 s.

    Blocks double until one takes long enough to measure; their content can't be compressed.
    The file has no name, so it disappears with this process.
    """
    most = disk(workdir) // FREE_SPACE_DIVISOR
    size, best = SMALLEST, 0.0
    noise = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=existing(workdir)) as file:
        while size <= min(LARGEST, most):
            started = time.monotonic()
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            for _ in range(max(1, size >> 20)):
                os.write(file.fileno(), noise[: min(size, 1 << 20)])
            os.fsync(file.fileno())
            took = time.monotonic() - started
            best = max(best, size / took / 1e6)
            if took >= ENOUGH:
                break
            size *= 2
    return round(best, 2) or None


def main(folder: str, writes: bool) -> None:
    workdir, root = Path(folder), Path("/")
    emit_reading(None, "cpus", lambda: cpus(root))
    emit_reading(None, "ram", lambda: ram(root))
    emit_reading(None, "shm", lambda: shm(root))
    emit_reading(None, "disk", lambda: disk(workdir))
    if writes:
        emit_reading(None, "disk_speed", lambda: disk_speed(workdir))
    emit(None, "end")
