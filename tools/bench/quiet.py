"""Wait until nothing else runs on this machine: two cores are soon shared."""

from __future__ import annotations

import time
from pathlib import Path

_IDLE = 0.85
_LOOK_S = 2.0


def wait(patience: float) -> None:
    """Return once the cores were idle for a moment, or after `patience` seconds."""
    end = time.monotonic() + patience
    while time.monotonic() < end and idle() < _IDLE:
        pass


def idle() -> float:
    """Return the idle share of the cores' time, over the next seconds."""
    before = _ticks()
    time.sleep(_LOOK_S)
    after = _ticks()
    return (after[0] - before[0]) / max(1, after[1] - before[1])


def _ticks() -> tuple[int, int]:
    """Return idle and total ticks since boot (proc(5), /proc/stat: the 4th and 5th are idle)."""
    fields = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return fields[3] + fields[4], sum(fields[:8])
