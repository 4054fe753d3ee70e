"""Waiting in tests, and limits of time that a slow or busy machine keeps too."""

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

PATIENCE_S = 120.0
"""How long a test waits for what must come. Only a test that fails waits so long."""
_USUAL_S = 0.03
"""Processor time of `_work` on the machine that limits of time are meant for."""
T = TypeVar("T")


def wait_until(
    is_so: Callable[[], T], said: Callable[[], object] = lambda: "", *, pause: float = 0.05
) -> T:
    """Wait until it is so and return what `is_so` returned; fails with what `said` returns."""
    limit = time.monotonic() + PATIENCE_S
    while not (found := is_so()):
        assert time.monotonic() < limit, said()
        time.sleep(pause)
    return found


def slowness() -> float:
    """Return how many times as long as usual work takes here now: 1 if nothing else does work.

    A limit that a user is promised is multiplied by it. What is merely not to be waited for lasts
    minutes instead, and needs none.
    """
    cores = os.cpu_count() or 1
    running = float(cores)
    if (now := Path("/proc/loadavg")).exists():
        running = float(now.read_text().split()[3].partition("/")[0])
    return max(1.0, running / cores, os.getloadavg()[0] / cores) * _processor()


@functools.cache
def _processor() -> float:
    return max(1.0, min(_work() for _ in range(5)) / _USUAL_S)


def _work() -> float:
    began = time.process_time()
    sum(number * number % 7 for number in range(400_000))
    return time.process_time() - began
