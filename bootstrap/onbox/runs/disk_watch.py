"""Say that a disk will be full before it is: looked at by the monitor, for each live run.

RUN/disk_low is there as long as less than a tenth of the disk is free (but no more than `ENOUGH`),
or the disk will be full within an hour at the rate of the last half hour. Its first line is `FREE
TOTAL SECONDS`: bytes, and seconds until it is full, `-` where it isn't filling up. Each further
line is `BYTES PATH`: the largest files of the run's tree that were written in the last hour. A
training finds it as $BOXSTRAP_RUN/disk_low.
"""

from __future__ import annotations

import heapq
import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from ..run_folder import RunFolder, write_whole

NAME = "disk_low"
LOW = 0.1
ENOUGH = 100 << 30
"""Bytes free with which a disk isn't low, whatever its size."""
SOON_S = 3600.0
WINDOW_S, SHORTEST_S = 1800.0, 300.0
"""Seconds over which the rate is measured: checkpoints come in bursts."""
LOOK_S = 300.0
"""Seconds between two looks at the files; one takes `WALK_S` at the most."""
WALK_S = 1.0
MOST_FILES = 5
LARGE = 1 << 20
"""Bytes from which on a file is worth naming."""


class DiskWatch:
    """The disks on which the live runs of a box write."""

    def __init__(self) -> None:
        self._free: dict[int, deque[tuple[float, int]]] = {}
        self._files: dict[Path, tuple[float, list[tuple[int, str]]]] = {}

    def turn(self, runs: list[Path], now: float) -> None:
        """Look at the disk of each run, at a time in seconds, and write or remove its file."""
        for run in runs:
            tree = tree_of(run)
            try:
                low = self._low(tree, now)
            except OSError:  # the tree was removed
                continue
            try:
                self._tell(run, tree, low, now)
            except OSError:  # it is full: what was told before stays
                continue

    def _low(self, tree: Path, now: float) -> tuple[int, int, float | None] | None:
        """Return bytes free and in total, and seconds until it is full; None if it isn't low."""
        disk, device = os.statvfs(tree), tree.stat().st_dev
        free, total = disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize
        seen = self._free.setdefault(device, deque())
        if not seen or seen[-1][0] < now:
            seen.append((now, free))
        while seen[0][0] < now - WINDOW_S:
            seen.popleft()
        left = seconds_left(seen)
        if free < min(total * LOW, ENOUGH) or (left is not None and left < SOON_S):
            return free, total, left
        return None

    def _tell(
        self, run: Path, tree: Path, low: tuple[int, int, float | None] | None, now: float
    ) -> None:
        file = run / NAME
        if low is None:
            file.unlink(missing_ok=True)
            self._files.pop(run, None)
            return
        looked, found = self._files.get(run, (-LOOK_S, []))
        if now - looked >= LOOK_S:
            found = newest_large(tree, time.time() - SOON_S)
            self._files[run] = now, found
        free, total, left = low
        lines = [f"{free} {total} {'-' if left is None else round(left)}"]
        lines += [f"{size} {path}" for size, path in found]
        write_whole(file, "\n".join(lines) + "\n")


def seconds_left(seen: deque[tuple[float, int]]) -> float | None:
    """Return until when the disk is full, by times and bytes free; None if it isn't filling up.

    The slower of two rates counts, of all that time and of its last half: data that is unpacked
    at the start is no trend.
    """
    now, free = seen[-1]
    began, before = seen[0]
    if now - began < SHORTEST_S:
        return None
    half, then = next((t, was) for t, was in seen if t >= (began + now) / 2)
    rate = min((before - free) / (now - began), (then - free) / max(now - half, 1.0))
    return free / rate if rate > 0 else None


def tree_of(run: Path) -> Path:
    """Return the folder that a run works in."""
    return Path(RunFolder(run).first("dir") or run)


def newest_large(tree: Path, since: float) -> list[tuple[int, str]]:
    """Return bytes and path of the largest files written since then, largest first."""
    until = time.monotonic() + WALK_S
    found = (
        (entry.stat(follow_symlinks=False), os.path.relpath(entry.path, tree))
        for entry in files_below(str(tree))
        if time.monotonic() < until
    )
    large = ((about, path) for about, path in found if about.st_size >= LARGE)
    recent = ((about.st_size, path) for about, path in large if about.st_mtime >= since)
    return heapq.nlargest(MOST_FILES, ((size, path) for size, path in recent if "\n" not in path))


def files_below(folder: str) -> Iterator[os.DirEntry[str]]:
    """Yield the files below a folder, without links and what git keeps."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name != ".git":
                yield from files_below(entry.path)
        elif entry.is_file(follow_symlinks=False):
            yield entry
