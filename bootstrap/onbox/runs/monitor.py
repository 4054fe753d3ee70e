"""The only boxstrap process that stays on a box: it samples live runs, watches their disks, finds
what there is to tell of them, holds the lease, and heeds a notice that the box is taken away.

`onbox runs.monitor BOX_HOME` is started with each run, and exits if the box has a monitor. It
ends a minute after the last run, unless the box has a lease. `samples` of each live run has lines
of JSON:
{"v": 1, "cpus", "memory_total", "gpus": [{index, name, memory_total, power_limit}]}, then
[t, cpu, memory_used, [[load, memory_used, power, temperature], ...]]: seconds since 1970, percent,
bytes, watts, °C; null is "not known", a GPU's row too.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from ..run_folder import RunFolder, write_whole
from ..run_processes import note_killed
from . import notice
from .disk_watch import DiskWatch
from .news import NewsWatch
from .top_stream import BoxSampler, host

if TYPE_CHECKING:
    from ..lease.keeper import LeaseKeeper

VERSION = 1
EVERY_S = 10.0
HURRY_S = 1.0
"""Seconds between two turns when the box is about to be ended."""
_FIRST_READ_S = 3.0
"""Seconds that the first sample waits for the GPUs at most: NVML starts slowly."""
STAYS_S = 60.0
"""Seconds that it stays without a live run, ready for the next one of a queue or of the user."""
STILL = ("index", "name", "memory_total", "power_limit")
MOVING = ("load", "memory_used", "power", "temperature")
"""What is written of a GPU: once, and in each sample."""
MOST_LINES = 8640
"""Most samples of a run, a day's worth; beyond that, every other one is dropped."""


class GpuWatch(threading.Thread):
    """Reads the GPUs in a thread of its own: a call into a faulty driver can hang for ever."""

    def __init__(self, every: float) -> None:
        super().__init__(name="gpus", daemon=True)
        self.every = every
        self.still: list[dict[str, Any]] = []
        self._rows: list[list[Any] | None] = []
        self._read = 0.0
        self.is_ready = threading.Event()

    def run(self) -> None:
        gpus = BoxSampler(None).gpus
        known = [{**gpu.still, **gpu.moving()} for gpu in gpus]
        self.still = [{name: gpu.get(name) for name in STILL} for gpu in known]
        while gpus:
            rows = ([each.get(name) for name in MOVING] for each in (gpu.moving() for gpu in gpus))
            self._rows = [None if row == [None] * len(row) else row for row in rows]
            self._read = time.monotonic()
            self.is_ready.set()
            time.sleep(self.every)
        self.is_ready.set()

    def rows(self) -> list[list[Any] | None]:
        """Return a row for each GPU; None for each if they were not read recently."""
        is_fresh = time.monotonic() - self._read < 3 * self.every
        return self._rows if is_fresh else [None for _ in self._rows]


class Monitor:
    """Writes the samples of all runs of a box."""

    def __init__(self, box_home: Path, every: float = EVERY_S) -> None:
        self.runs = box_home / "runs"
        self.gpus = GpuWatch(every)
        self.disks = DiskWatch()
        self.news = NewsWatch(box_home)
        self._over: set[Path] = set()
        self._lines: dict[Path, int] = {}

    def live_runs(self) -> list[Path]:
        """Return the live runs. One that ended never lives again, and is not checked again."""
        begun = {note.parent for note in self.runs.glob("*/*/pid")} - self._over
        live = {run for run in begun if RunFolder(run).is_running}
        for run in begun - live:
            note_killed(RunFolder(run))
        self._over |= begun - live
        return sorted(live)

    def sample(self, runs: list[Path]) -> None:
        machine = host(self.runs)
        row = [round(time.time()), machine["cpu"], machine["memory_used"], self.gpus.rows()]
        head = {
            "v": VERSION,
            "cpus": machine["cpus"],
            "memory_total": machine["memory_total"],
            "gpus": self.gpus.still,
        }
        for run in runs:
            try:
                self._write(run / "samples", head, row)
            except OSError:  # a full disk, or the run was removed: the next sample may fit
                continue

    def _write(self, file: Path, head: dict[str, Any], row: list[Any]) -> None:
        if file not in self._lines:
            self._lines[file] = len(file.read_bytes().splitlines()) if file.exists() else 0
        with file.open("a") as out:
            if not self._lines[file]:
                out.write(json.dumps(head) + "\n")
            # A row that a full disk cut off joins with this one; readers skip a malformed line.
            out.write(json.dumps(row, separators=(",", ":")) + "\n")
        self._lines[file] += 1
        if self._lines[file] > MOST_LINES:
            self._lines[file] = thin_out(file)


def thin_out(file: Path) -> int:
    """Drop every other sample, since a run may take weeks; return how many are left."""
    head, *rows = file.read_text().splitlines()
    kept = rows[1::2]
    write_whole(file, "\n".join([head, *kept]) + "\n")
    return len(kept)


def watch(box_home: Path, every: float, stays: float) -> None:
    """Sample and hold the lease; return once there was no run and no lease for `stays` seconds."""
    monitor, alone_since = Monitor(box_home, every), time.monotonic()
    notice.begin(box_home)
    monitor.gpus.start()
    host(monitor.runs)  # CPU load is measured since the previous call
    monitor.gpus.is_ready.wait(max(every, _FIRST_READ_S))
    keeper = lease_keeper(box_home)
    while keeper or monitor.runs.is_dir():
        began = time.monotonic()
        live = monitor.live_runs()
        if live:
            monitor.sample(live)
            monitor.disks.turn(live, began)
        keeper = keeper or lease_keeper(box_home)
        has_lease = keeper is not None and keeper.turn(live, monitor.gpus.rows())
        monitor.news.turn(live, began)
        if live or has_lease:
            alone_since = began
        elif began - alone_since >= stays:
            return
        pause = min(every, HURRY_S) if keeper and keeper.looks else every
        time.sleep(max(0.0, pause - (time.monotonic() - began)))


def lease_keeper(box_home: Path) -> LeaseKeeper | None:
    """Return the keeper of the box's lease; None if it has no lease."""
    if not (box_home / "lease.json").is_file():
        return None
    from ..lease.keeper import LeaseKeeper  # only boxes with a lease have it

    return LeaseKeeper(box_home)


def serve(box_home: Path, every: float, stays: float, *, waits: bool = False) -> None:
    """Be the box's monitor until none is needed. If it has one, return, or wait for it: `waits`."""
    with (box_home / "monitor.lock").open("a") as lock:
        if waits:
            fcntl.flock(lock, fcntl.LOCK_EX)
        # A run that started while this monitor was leaving found the lock taken: check again.
        while has_place(lock):
            watch(box_home, every, stays)
            fcntl.flock(lock, fcntl.LOCK_UN)
            if not Monitor(box_home).live_runs():
                return


def has_place(lock: TextIO) -> bool:
    """Take the lock; return whether no other monitor of this box has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def main() -> None:
    """Run the monitor at a low priority, and in `/`, so that it keeps no folder busy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("box_home", type=Path, help="boxstrap's folder on this box")
    parser.add_argument("--every", type=float, default=EVERY_S, help="seconds between two samples")
    parser.add_argument("--stays", type=float, default=STAYS_S, help="seconds after the last run")
    parser.add_argument(
        "--waits", action="store_true", help="start once the running monitor has exited"
    )
    options = parser.parse_args()
    os.chdir("/")
    os.nice(10)
    notice.hold_stop()
    serve(options.box_home, options.every, options.stays, waits=options.waits)
