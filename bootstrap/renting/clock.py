"""The clock for code that waits for a provider; tests replace it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class RentingClock:
    """The time in seconds since 1970, and a way to sleep."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


LOOK_S = 5.0
"""Seconds between looks at an account."""
