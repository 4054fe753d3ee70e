"""How fast a step goes and how long it still takes. Pure: time comes with the events."""

from __future__ import annotations

import math
from dataclasses import dataclass

MEMORY = 5.0  # seconds: how far back the speed looks
_MIN_STEP = 0.05  # seconds: closer reports are taken together, or noise becomes speed


@dataclass
class Progress:
    """The progress of one thing, from reports of `done` at times `t` (seconds).

    A count that goes down, another unit or another total start over; a clock
    that jumps back never yields a negative speed.
    """

    done: float = 0.0
    total: float | None = None
    unit: str = ""
    files: tuple[float, float] | None = None
    """Of bytes: how many files are done, and how many there are."""
    _speed: float | None = None
    _from_done: float = 0.0
    _from_t: float | None = None

    def report(self, done: float, total: float | None, unit: str, t: float) -> None:
        """Take in one report. Nonsense (negative counts, done over total) is corrected."""
        done = max(0.0, done)
        total = total if total and total >= done else None
        if done < self.done or unit != self.unit or self._from_t is None or t < self._from_t:
            self._speed, self._from_done, self._from_t = None, done, t
        self.done, self.total, self.unit = done, total, unit
        passed = t - self._from_t
        if passed < _MIN_STEP:
            return
        now = (done - self._from_done) / passed
        # The longer ago the last report, the less the old speed counts.
        old = math.exp(-passed / MEMORY)
        self._speed = now if self._speed is None else old * self._speed + (1 - old) * now
        self._from_done, self._from_t = done, t

    @property
    def is_known(self) -> bool:
        """Whether anything was reported yet."""
        return self._from_t is not None

    @property
    def speed(self) -> float | None:
        """Units a second, smoothed; None until two reports were seen."""
        return self._speed

    @property
    def share(self) -> float | None:
        """Done of total, 0 to 1; None where the total isn't known."""
        return None if self.total is None else self.done / self.total

    @property
    def left(self) -> float | None:
        """Seconds still to go; None if unknown."""
        if self.total is None:
            return None
        if self.unit == "seconds":
            return self.total - self.done
        if not self._speed:
            return None
        seconds = (self.total - self.done) / self._speed
        return seconds if seconds < 1e6 else None
