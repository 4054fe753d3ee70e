"""What the monitor costs a box while nothing happens: a run that lives, and prints nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tools.bench import clock
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

GROUP = "the monitor, while a run lives and nothing happens"
_QUIET_S = 60.0
"""Seconds over which its processor time counts: six of its turns."""
_SETTLES_S = 30.0
"""It starts late with a run that prints nothing, and loads its libraries first."""
_MOST_PERCENT, _MOST_MB = 0.3, 25
_TRAIN = "import time\nprint('step 1', flush=True)\ntime.sleep(3600)\n"
_PROFILE = "version: 1\nextends: vast\ngpu: {require: false}\ntrain: {command: python train.py}\n"


def measure(stage: Stage, runs: int) -> list[BenchRow]:
    """Start the run, wait until the monitor has settled, and watch it for a minute each time."""
    place = stage.box("vast")
    repository = stage.repository("quiet", {"train.py": _TRAIN, "boxstrap.yaml": _PROFILE})
    words = ("--host", place.host, "--identity", str(place.box.identity))
    tell("a run that lives, and a monitor that has nothing to say")
    setup = stage.boxstrap("setup", *words, state="quiet", repository=repository)
    clock.run(setup, stage.file("quiet.out"))
    process = _monitor(place)
    time.sleep(_SETTLES_S)
    percents, memory = [], []
    for _ in range(runs):
        began, before = time.monotonic(), _ticks(process)
        time.sleep(_QUIET_S)
        used = (_ticks(process) - before) / os.sysconf("SC_CLK_TCK")
        percents.append(100 * used / (time.monotonic() - began))
        memory.append(_memory_mb(process))
    return [
        BenchRow(GROUP, "of one core", percents, "%", Bar(_MOST_PERCENT)),
        BenchRow(GROUP, "memory", [max(memory)], "MB", Bar(_MOST_MB), digits=1),
    ]


def _monitor(place: StagePlace) -> Path:
    """Return the folder in this machine's /proc of the box's monitor, once it is there."""
    end = time.monotonic() + 60
    root = place.box.root.stat()
    while time.monotonic() < end:
        for process in Path("/proc").glob("[0-9]*"):
            try:
                is_it = b"\0runs.monitor\0" in (process / "cmdline").read_bytes()
                if is_it and os.path.samestat(root, (process / "root").stat()):
                    return process
            except OSError:  # it has ended
                continue
        time.sleep(0.5)
    raise clock.BenchError("the box has no monitor a minute after the run began")


def _ticks(process: Path) -> int:
    """Return its processor time and that of its children that ended (proc(5), stat: 14 to 17)."""
    fields = (process / "stat").read_text().rpartition(") ")[2].split()
    return sum(map(int, fields[11:15]))


def _memory_mb(process: Path) -> float:
    """Return its resident memory, mapped files included, in MB."""
    (line,) = (
        one for one in (process / "status").read_text().splitlines() if one.startswith("VmRSS:")
    )
    return int(line.split()[1]) * 1024 / 1e6
