"""The state of each step, its speed and remaining time, gathered from events. Pure. Steps, codes
and reasons come from closed vocabularies, so memory use is bounded, whatever a box sends."""

import math
import time
from collections.abc import Callable, Iterable

from bootstrap.sizes import duration, grouped_number, rate, size, size_of, speed
from bootstrap.steps.event_codes import explain
from bootstrap.steps.events import WHY, Event
from bootstrap.steps.plan import DOING
from bootstrap.value import dataclass, field

MEMORY = 5.0  # seconds over which the speed is smoothed
_MIN_STEP = 0.05  # seconds; closer reports are combined, since noise would dominate the speed


@dataclass
class Progress:
    """The progress of one thing, from reports of `done` at times `t` (seconds).

    A count that goes down, another unit or a clock that jumps back starts the
    speed over, so that it is never negative; so does more to do once all was done,
    since nothing was at work in between.
    """

    done: float = 0.0
    total: float | None = None
    unit: str = ""
    files: tuple[float, float] | None = None
    """If bytes are counted: how many files are done, and how many there are."""
    speed: float | None = None  # units per second, smoothed; None until there are two reports
    _from_done: float = 0.0
    _from_t: float | None = None

    def report(self, done: float, total: float | None, unit: str, t: float) -> None:
        """Add a report; a negative count or a total below `done` is corrected."""
        done = max(0.0, done)
        total = total if total and total >= done else None
        has_more = self.done == self.total != total
        other = done < self.done or unit != self.unit or has_more
        if other or self._from_t is None or t < self._from_t:
            self.speed, self._from_done, self._from_t = None, done, t
        self.done, self.total, self.unit = done, total, unit
        passed = t - self._from_t
        if passed < _MIN_STEP:
            return
        now = (done - self._from_done) / passed
        # The older the last report, the less the old speed counts.
        old = math.exp(-passed / MEMORY)
        self.speed = now if self.speed is None else old * self.speed + (1 - old) * now
        self._from_done, self._from_t = done, t

    @property
    def is_known(self) -> bool:
        return self._from_t is not None

    @property
    def share(self) -> float | None:
        """The share that is done, 0 to 1; None if the total is unknown."""
        return None if self.total is None else self.done / self.total

    @property
    def left(self) -> float | None:
        if self.total is None or self.total == self.done:
            return None
        if self.unit == "seconds":
            return self.total - self.done
        if not self.speed:
            return None
        seconds = (self.total - self.done) / self.speed
        return seconds if seconds < 1e6 else None


WAITING, RUNNING, OK, SKIPPED, WARNED, FAILED = (
    "waiting",
    "running",
    "ok",
    "skipped",
    "warned",
    "failed",
)
_ENDS = {"ok": OK, "skip": SKIPPED, "fail": FAILED, "done": OK}


@dataclass
class StepRow:
    """One step: its state, and what to say about it."""

    step: str
    state: str = WAITING
    why: str = ""
    said: str = ""  # the sentence of the last code
    noted: str = ""  # the sentence of the last note, kept to the end
    seconds: float | None = None
    started: float | None = None  # on the box's clock
    ended: float | None = None
    progress: Progress = field(default_factory=Progress)
    has_started: bool = False
    has_warned: bool = False

    @property
    def is_over(self) -> bool:
        return self.state not in {WAITING, RUNNING}

    @property
    def was_right(self) -> bool:
        """Whether there was nothing to do in it, which no person needs to be told."""
        return self.state == SKIPPED and self.why == WHY["done"]

    def words(self) -> list[str]:
        """Return what to show, from the longest wording to the shortest."""
        if self.state == SKIPPED:
            return [self.why]
        if self.state == RUNNING:
            return [self.said] if self.said else progress_words(self.progress) or [self.why]
        if self.state == OK and self.progress.total is not None and self.progress.unit != "seconds":
            amount = _amount(Progress(self.progress.done, None, self.progress.unit))
            return [f"{amount}; {self.noted}", amount] if self.noted else [amount]
        return [self.said or self.noted]


class Steps:
    """The rows of a plan, updated by `take`."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.rows: dict[str, StepRow] = {}
        self.setup = StepRow("setup")
        self._now = now
        self._warned: set[tuple[str, str]] = set()
        self._lag: float | None = None  # this machine's clock minus the box's

    def plan(self, steps: Iterable[str]) -> None:
        self.rows = {
            step: self.rows.get(step) or StepRow(step) for step in steps if step != "setup"
        }

    def take(self, event: Event) -> bool:
        """Take an event; returns whether it changes anything."""
        # Events that waited to be read are older than they seem: the least delayed shows the lag.
        lag = self._now() - event.t
        self._lag = lag if self._lag is None else min(self._lag, lag)
        if self.setup.started is None and event.setup:  # a push is part of none
            self.setup.started, self.setup.state = event.t, RUNNING
        step = event.step
        row = self.setup if step == "setup" else self.rows.setdefault(step, StepRow(step))
        if event.event == "start":
            return self._start(row, event)
        if event.event in {"progress", "wait"}:
            return self._progress(row, event)
        if event.event == "note":
            said, row.noted = row.noted, explain(event.word("code"), event.fields).what
            return row.noted != said
        if event.event == "warn":
            return self._warn(row, event)
        return self._end(row, event)

    def elapsed(self, row: StepRow) -> float | None:
        """Return the seconds that the step took, or has taken so far."""
        if row.seconds is not None or row.started is None or row.state != RUNNING:
            return row.seconds
        box_now = self._now() - (self._lag or 0.0)
        return max(0.0, box_now - row.started)

    def _start(self, row: StepRow, event: Event) -> bool:
        if row.state == RUNNING and row.has_started:
            return False
        word = event.word("why")
        why = DOING.get(row.step, "") if word == "new" else WHY.get(word, "")
        fresh = StepRow(row.step, RUNNING, why, started=event.t, has_started=True)
        row.__dict__.update(fresh.__dict__)
        return True

    def _progress(self, row: StepRow, event: Event) -> bool:
        if row.state != RUNNING:
            self._start(row, event)
            row.has_started = False  # objects may be sent before the step starts: its start is news
        code = event.word("code")
        row.said = explain(code, event.fields).what if code else ""
        done = event.number("done")
        if done is not None:
            row.progress.report(done, event.number("total"), event.word("unit"), event.t)
            files, all_files = event.number("files"), event.number("all_files")
            row.progress.files = (files or 0, all_files) if all_files else None
        return done is not None or bool(code)

    def _warn(self, row: StepRow, event: Event) -> bool:
        code = event.word("code")
        row.said = explain(code, event.fields).what if code else row.said
        row.has_warned = True
        # Each warning only once in a setup: a box could warn forever.
        is_news = (row.step, code) not in self._warned
        self._warned.add((row.step, code))
        return is_news

    def _end(self, row: StepRow, event: Event) -> bool:
        state = _ENDS[event.event]
        if event.event == "done" and event.number("rc"):
            state = FAILED
        if state == OK and row.has_warned:
            state = WARNED
        if row.state == state:
            return False
        row.state, row.ended = state, event.t
        row.why = WHY.get(event.word("why"), row.why)
        if code := event.word("code"):
            row.said = explain(code, event.fields).what
        elif state == OK:
            row.said = ""
        row.seconds = _seconds(row, event)
        return True


def _seconds(row: StepRow, event: Event) -> float | None:
    told = event.number("secs")
    if told is not None:
        return max(0.0, told)
    if row.state == SKIPPED or row.started is None:
        return None
    return max(0.0, event.t - row.started)


def progress_words(progress: Progress) -> list[str]:
    """Return amount, speed and time left, from the longest wording to the shortest."""
    if not progress.is_known:
        return []
    left = "" if progress.left is None else f"{duration(progress.left)} left"
    amount = _amount(progress)
    share = "" if progress.share is None else f"{progress.share:.0%}"
    done, count = map(grouped_number, progress.files) if progress.files else ("", "")
    wordings = (
        *([[f"{done} of {count} files", amount, _speed(progress), left]] if count else []),
        [amount, _speed(progress), left],
        [amount, left],
        [share or amount, left],
        [share],
    )
    return [", ".join(filter(None, wording)) for wording in wordings if any(wording)]


def _amount(progress: Progress) -> str:
    if progress.unit == "bytes":
        return (
            size(progress.done)
            if progress.total is None
            else size_of(progress.done, progress.total)
        )
    if progress.unit == "seconds":
        return f"{grouped_number(progress.done)} s"
    of = "" if progress.total is None else f" of {grouped_number(progress.total)}"
    unit = progress.unit.removesuffix("s") if progress.done == 1 and not of else progress.unit
    return f"{grouped_number(progress.done)}{of} {unit}".strip()


def _speed(progress: Progress) -> str:
    if not progress.speed or progress.unit in ("seconds", "commands"):
        return ""
    return speed(progress.speed) if progress.unit == "bytes" else rate(progress.speed)
