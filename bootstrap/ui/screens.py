"""The screens beside the live one, and which fits the output: plain lines for pipes and files, or
one document at the end (`--json`).

    12:03:04  python     start  new requirements
    12:03:10  python     ...    12 of 90 packages, 4.2/s, 19 s left
    12:03:26  python     ok     21 s
"""

# ruff: noqa: ARG002 - `Screen` gives the methods their arguments
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TextIO

from bootstrap.errors import BoxstrapError
from bootstrap.sizes import duration, spent_in_words
from bootstrap.steps.events import Event
from bootstrap.ui import layout
from bootstrap.ui.layout import width_of, write_line
from bootstrap.ui.screen import TEXT_LENGTH, Paint, Result, Screen
from bootstrap.ui.steps import FAILED, OK, SKIPPED, WARNED, StepRow, Steps
from bootstrap.value import document


def make_screen(
    json: bool = False,
    stream: TextIO | None = None,
    out: TextIO | None = None,
    *,
    env: Mapping[str, str] | None = None,
    events: bool = False,
) -> Screen:
    """Make the screen that fits: JSON if asked for, live on a terminal, otherwise plain lines.

    `stream` (default: standard error) gets progress, `out` (default: standard
    output) results. `TERM=dumb` means plain lines; `NO_COLOR` gives a timeline without colours.
    """
    stream, out = stream or sys.stderr, out or sys.stdout
    env = os.environ if env is None else env
    if json:
        return JsonScreen(out, events)
    if layout.is_live(stream, env):
        from bootstrap.ui.timeline import TimelineScreen

        return TimelineScreen(stream, out, env=env)
    return PlainScreen(stream, out)


EVERY = 5.0  # seconds between two progress lines of a step, or of a lost link
MOST_LINES = 100  # lines of one step: a box could report forever
_STEP = 9
_WORD = {OK: "ok", WARNED: "ok", SKIPPED: "skip", FAILED: "fail"}


class PlainScreen(Screen):
    """Prints a line for each thing that happens; `clock` returns the time to print."""

    def __init__(
        self,
        stream: TextIO,
        out: TextIO,
        *,
        now: Callable[[], float] = time.monotonic,
        clock: Callable[[], str] = lambda: time.strftime("%H:%M:%S"),
    ) -> None:
        self._stream, self._out = stream, out
        self._now, self._clock = now, clock
        self._steps = Steps(now)
        self._told: dict[str, float] = {}
        self._waits: dict[str, str] = {}
        self._lines: Counter[str] = Counter()
        self._lost_at: float | None = None

    @property
    def width(self) -> int | None:
        return width_of(self._out)

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
            if self._is_due(row.step):
                self._told[row.step] = self._now()
                self._step(row, "...", next(iter(row.words()), ""))
        elif event.event == "start":
            self._told[row.step] = self._now()  # the first progress can wait, too
            self._step(row, "start", row.why)
        elif event.event == "note":
            self._step(row, "...", row.noted)
        elif event.event == "warn":
            self._step(row, "warn", row.said)
        elif not row.was_right:
            seconds = self._steps.elapsed(row)
            time_ = "" if seconds is None else duration(seconds)
            cost = spent_in_words(seconds, self.price)
            self._step(row, _WORD[row.state], ", ".join(filter(None, [time_, cost, *row.words()])))

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

    def result(self, data: Result, text: str = "", paint: Paint | None = None) -> None:
        if text:
            write_line(self._out, self.safe_text(text))

    def lost(self, seconds: float) -> None:
        if self._lost_at is None:
            self._lost_at = self._now() - seconds
        elif not self._is_due("link"):
            return
        self._told["link"] = self._now()
        gone = f"for {duration(seconds)}; " if seconds >= 1 else ""
        self._line("link", "lost", f"{gone}reconnecting; if the box is up, it continues")

    def back(self) -> None:
        if self._lost_at is not None:
            self._line("link", "back", f"after {duration(self._now() - self._lost_at)}")
            self._lost_at = None

    def close(self) -> None:
        self._stream.flush()
        self._out.flush()

    def _is_due(self, name: str) -> bool:
        told = self._told.get(name)
        return told is None or self._now() - told >= EVERY

    def _step(self, row: StepRow, word: str, text: str) -> None:
        self._lines[row.step] += 1
        if self._lines[row.step] < MOST_LINES:
            self._line(row.step, word, text)
        elif self._lines[row.step] == MOST_LINES:
            self._line(row.step, "...", "more lines are not shown; the step's log has all of them")

    def _line(self, label: str, word: str, text: str) -> None:
        words = [f"{label:<{_STEP}}", *([f"{word:<5}"] if word else [])]
        write_line(self._stream, "  ".join([self._clock(), *words, text]).rstrip())


VERSION = 1
MOST_ENTRIES = 200  # of sentences, notes, warnings and logs each; more are dropped


class JsonScreen(Screen):
    """Prints nothing until `close`, then one JSON object on `out`, also after an error.

    With `events` a line is printed before it for each thing that happens, as a JSON object, too.

    It always has `v` and `exit`; `steps`, `said`, `notes`, `warnings`, `logs`, `cut` (the keys of
    which a part was dropped) and `error` if they are not empty; and the result's own keys.
    """

    def __init__(self, out: TextIO, events: bool = False) -> None:
        self._out, self._has_events = out, events
        self._steps = Steps()
        self._parts: dict[str, object] = {}
        self._said: list[str] = []
        self._notes: dict[str, str] = {}
        self._warnings: list[str] = []
        self._logs: dict[str, list[str]] = {}
        self._cut = dict[str, None]()
        self._error: dict[str, object] | None = None
        self._exit = self._told = 0
        self._is_closed = False

    def plan(self, steps: Sequence[str]) -> None:
        self._steps.plan(steps)

    def event(self, event: Event) -> None:
        if not self._steps.take(event):
            return
        row = self._steps.rows.get(event.step, self._steps.setup)
        if event.event == "warn":
            self.warn(f"{row.step}: {row.said}")
        elif event.event not in {"progress", "note", "wait"}:
            self._tell("step", {"step": row.step, "state": row.state})

    def say(self, text: str) -> None:
        self._tell("said", {"text": text})
        if self._has_room("said", self._said):
            self._said.append(self.safe_text(text))

    def note(self, label: str, text: str) -> None:
        self._tell("note", {"label": label, "text": text})
        if self._has_room("notes", self._notes):
            self._notes[self.safe_text(label)] = self.safe_text(text)

    def warn(self, text: str) -> None:
        self._tell("warning", {"text": text})
        if self._has_room("warnings", self._warnings):
            self._warnings.append(self.safe_text(text))

    def _has_room(self, key: str, entries: Collection[str]) -> bool:
        if len(entries) >= MOST_ENTRIES:
            self._cut[key] = None
        return len(entries) < MOST_ENTRIES

    def _tell(self, kind: str, fields: Mapping[str, object]) -> None:
        """Print the line of an event, as many as the document may hold."""
        self._told += 1
        if self._has_events and self._told <= MOST_ENTRIES:
            line = {"v": VERSION, "event": kind, **fields}
            self._out.write(json.dumps(self._safe_value(line)) + "\n")
            self._out.flush()

    def log_tail(self, step: str, lines: Iterable[str | bytes]) -> None:
        if len(self._logs) < MOST_ENTRIES:
            self._logs[self.safe_text(step)] = self.safe_tail(lines)

    def result(self, data: Result, text: str = "", paint: Paint | None = None) -> None:
        self._parts.update(
            {self.safe_text(key): self._safe_value(at, key) for key, at in document(data).items()}
        )

    def failed(self, error: BaseException, code: int) -> None:
        """Keep the error and the program's exit code for the document."""
        if isinstance(error, BoxstrapError):
            told = {key: self._safe_value(value) for key, value in document(error).items()}
        elif isinstance(error, KeyboardInterrupt):
            told = {"error": "Interrupted", "what": "interrupted here; the box continues"}
            told |= {"next": self.safe_text(str(error))} if str(error) else {}
        else:
            what = self.safe_text(f"{type(error).__name__}: {error}")
            told = {"error": "Internal", "what": what}
        self._exit, self._error = code, {**told, "exit": code}

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        document: dict[str, object] = {"v": VERSION, "exit": self._exit, **self._parts}
        extras = {
            "steps": self._step_list(),
            "said": self._said,
            "notes": self._notes,
            "warnings": self._warnings,
            "logs": self._logs,
            "cut": [*self._cut],
            "error": self._error,
        }
        document.update({key: value for key, value in extras.items() if value})
        document.update(v=VERSION, exit=self._exit)
        self._out.write(json.dumps(document) + "\n")
        self._out.flush()

    def _step_list(self) -> list[dict[str, object]]:
        keys = ("step", "state", "why", "said", "noted", "seconds")
        told = ({key: getattr(row, key) for key in keys} for row in self._steps.rows.values())
        return [{key: at for key, at in row.items() if at not in {"", None}} for row in told]

    def _safe_value(self, value: object, key: str = "") -> object:
        """Return the value with each text made safe. Raises TypeError if it is not JSON."""
        if isinstance(value, str):
            if len(value) > TEXT_LENGTH and key:
                self._cut[self.safe_text(key)] = None
            return self.safe_text(value)
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, Mapping):
            return {self.safe_text(at): self._safe_value(each, key) for at, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._safe_value(each, key) for each in value]
        raise TypeError(f"a result of type {type(value).__name__} is no JSON")
