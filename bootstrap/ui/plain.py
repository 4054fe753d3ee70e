"""A screen of plain lines, for pipes, files and simple terminals.

12:03:04  python     start  new requirements
12:03:10  python     ...    12 of 90 packages, 4.2/s, 19 s left
12:03:26  python     ok     21 s
"""

# ruff: noqa: ARG002, D102 - `Screen` gives the methods their arguments and docstrings

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO

from bootstrap.events import Event
from bootstrap.text import sizes
from bootstrap.ui.screen import Paint, Redact, Screen
from bootstrap.ui.steps import FAILED, OK, SKIPPED, WARNED, StepRow, Steps
from bootstrap.ui.terminal import write_line

EVERY = 5.0  # seconds between two progress lines of a step, or of a lost link
MOST = 100  # lines of one step: a box could report forever
_STEP = 9
_WORD = {OK: "ok", WARNED: "ok", SKIPPED: "skip", FAILED: "fail"}


class PlainScreen(Screen):
    """Prints a line for each thing that happens; `clock` returns the time to print."""

    def __init__(
        self,
        stream: TextIO,
        out: TextIO,
        redact: Redact = str,
        *,
        now: Callable[[], float] = time.monotonic,
        clock: Callable[[], str] = lambda: time.strftime("%H:%M:%S"),
    ) -> None:
        super().__init__(redact)
        self._stream, self._out = stream, out
        self._now, self._clock = now, clock
        self._steps = Steps(now)
        self._told: dict[str, float] = {}
        self._waits: dict[str, str] = {}
        self._lines: Counter[str] = Counter()
        self._lost_at: float | None = None

    def plan(self, steps: Sequence[str]) -> None:
        self._steps.plan(steps)
        self._line("plan", "", ", ".join(self._steps.rows))

    def event(self, event: Event) -> None:
        self.back()
        if not self._steps.take(event):
            return
        row = self._steps.rows.get(event.step, self._steps.setup)
        if event.event == "wait" and row.said != self._waits.get(row.step):
            self._waits[row.step] = row.said  # a new reason to wait is shown immediately
            self._step(row, "...", row.said)
        elif event.event in {"progress", "wait"}:
            self._progress(row)
        elif event.event == "start":
            self._told[row.step] = self._now()  # the first progress can wait, too
            self._step(row, "start", row.why)
        elif event.event == "note":
            self._step(row, "...", row.noted)
        elif event.event == "warn":
            self._step(row, "warn", row.said)
        else:
            self._step(row, _WORD[row.state], self._end_of(row))

    def say(self, text: str) -> None:
        for line in self.safe_text(text).splitlines():
            write_line(self._stream, f"{self._clock()}  {line}")

    def note(self, label: str, text: str) -> None:
        self._line(self.safe_text(label), "", self.safe_text(text))

    def warn(self, text: str) -> None:
        self._line("warning", "", self.safe_text(text))

    def log_tail(self, step: str, lines: Iterable[str | bytes]) -> None:
        for line in self.safe_tail(lines):
            self._line(step, "|", line)

    def result(
        self, data: Mapping[str, object], text: str = "", paint: Paint | None = None
    ) -> None:
        if text:
            write_line(self._out, self.safe_text(text))

    def lost(self, seconds: float) -> None:
        if self._lost_at is None:
            self._lost_at = self._now() - seconds
        elif not self._is_due("link"):
            return
        self._told["link"] = self._now()
        gone = f"for {sizes.duration(seconds)}; " if seconds >= 1 else ""
        self._line("link", "lost", f"{gone}reconnecting; the box continues")

    def back(self) -> None:
        if self._lost_at is not None:
            self._line("link", "back", f"after {sizes.duration(self._now() - self._lost_at)}")
            self._lost_at = None

    def close(self) -> None:
        self._stream.flush()
        self._out.flush()

    def _progress(self, row: StepRow) -> None:
        if self._is_due(row.step):
            self._told[row.step] = self._now()
            self._step(row, "...", next(iter(row.words()), ""))

    def _is_due(self, name: str) -> bool:
        told = self._told.get(name)
        return told is None or self._now() - told >= EVERY

    def _end_of(self, row: StepRow) -> str:
        seconds = self._steps.elapsed(row)
        time_ = "" if seconds is None else sizes.duration(seconds)
        cost = sizes.spent_in_words(seconds, self.price)
        return ", ".join(filter(None, [time_, cost, *row.words()]))

    def _step(self, row: StepRow, word: str, text: str) -> None:
        self._lines[row.step] += 1
        if self._lines[row.step] < MOST:
            self._line(row.step, word, text)
        elif self._lines[row.step] == MOST:
            self._line(row.step, "...", "more lines are not shown; the step's log has all of them")

    def _line(self, label: str, word: str, text: str) -> None:
        words = [f"{label:<{_STEP}}", *([f"{word:<5}"] if word else [])]
        write_line(self._stream, "  ".join([self._clock(), *words, text]).rstrip())
