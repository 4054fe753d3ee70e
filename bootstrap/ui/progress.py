"""Speed and remaining time of a step. Pure: the time comes with the events."""

from __future__ import annotations

import math
from dataclasses import dataclass

MEMORY = 5.0  # seconds over which the speed is smoothed
_MIN_STEP = 0.05  # seconds; closer reports are combined, since noise would dominate the speed


@dataclass
class Progress:
    """The progress of one thing, from reports of `done` at times `t` (seconds).

    A count that goes down, another unit or a clock that jumps back starts the
    speed over, so that it is never negative.
    """

    done: float = 0.0
    total: float | None = None
    unit: str = ""
    files: tuple[float, float] | None = None
    """If bytes are counted: how many files are done, and how many there are."""
    _speed: float | None = None
    _from_done: float = 0.0
    _from_t: float | None = None

    def report(self, done: float, total: float | None, unit: str, t: float) -> None:
        """Add a report; a negative count or a total below `done` is corrected."""
        done = max(0.0, done)
        total = total if total and total >= done else None
        if done < self.done or unit != self.unit or self._from_t is None or t < self._from_t:
            self._speed, self._from_done, self._from_t = None, done, t
        self.done, self.total, self.unit = done, total, unit
        passed = t - self._from_t
        if passed < _MIN_STEP:
            return
        now = (done - self._from_done) / passed
        # The older the last report, the less the old speed counts.
        old = math.exp(-passed / MEMORY)
        self._speed = now if self._speed is None else old * self._speed + (1 - old) * now
        self._from_done, self._from_t = done, t

    @property
    def is_known(self) -> bool:
        """Whether anything has been reported."""
        return self._from_t is not None

    @property
    def speed(self) -> float | None:
        """Units per second, smoothed; None until there are two reports."""
        return self._speed

    @property
    def share(self) -> float | None:
        """The share that is done, 0 to 1; None if the total is unknown."""
        return None if self.total is None else self.done / self.total

    @property
    def left(self) -> float | None:
        """Seconds left; None if unknown."""
        if self.total is None:
            return None
        if self.unit == "seconds":
            return self.total - self.done
        if not self._speed:
            return None
        seconds = (self.total - self.done) / self._speed
        return seconds if seconds < 1e6 else None
