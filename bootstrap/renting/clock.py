"""The time here, as what waits for a provider sees it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class RentingClock:
    """Seconds since 1970, and waiting."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


LOOK_S = 5.0
"""Between looks at an account."""
