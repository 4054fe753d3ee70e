"""A run's history on its box: samples, metrics, its setup's events, its record and log. Bounded and
sanitized."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from bootstrap.boxes.disk import LowDisk, parse_low_disk
from bootstrap.boxes.run import Run, RunState
from bootstrap.errors import BoxLacksError
from bootstrap.link.exchange import AnswerStream, answer_number, run_script, stream_script
from bootstrap.link.query import AskedBox, BoxRedaction, ask
from bootstrap.link.wire import PIECE, LinkLost, NoAnswer, Wire
from bootstrap.sanitize import sanitize
from bootstrap.sizes import duration
from bootstrap.steps import events
from bootstrap.steps.events import Event
from bootstrap.value import dataclass, field, replace

OF_PROFILE = ("command", "made_of", "results", "resume", "grace", "log_max")
"""Notes that come from the profile, in the order in which a manifest's digest has them."""
NOTES = (
    *OF_PROFILE,
    *("commit", "snapshot", "edited", "tree", "work", "session", "started", "dir", "venv"),
    *("gpus", "variables", "queue", "resumes", "exit", "ended", "kills", "killed", "metrics"),
    *("times", "samples"),
)
"""Files of a run's folder that come home."""
_MOST_NOTE = 4 * 1024 * 1024
_MOST_NOTES = 16 * 1024 * 1024  # bytes of all notes together


@dataclass
class BoxRecord:
    """The notes of a run as its box gives them, not sanitized, and its log. Read the log once."""

    notes: Mapping[str, bytes]
    metric: bytes  # the last line of its log with a metric
    begin: int  # the first byte of the log that comes; earlier ones were not asked for, or are gone
    length: int
    _stream: AnswerStream = field(repr=False)
    _held: bytes = field(repr=False)
    _wire: Wire = field(repr=False)

    @property
    def end(self) -> int:
        return self.begin + self.length

    def pieces(self) -> Iterator[bytes]:
        """Yield the log from `begin` to `end`. Raises LinkLost, NoAnswer."""
        left, piece = self.length, self._held
        while left:
            piece = piece or self._stream.read(PIECE)
            if not piece:
                raise _cut(self._wire)
            yield piece[:left]
            left -= min(left, len(piece))
            piece = b""

    def whole(self) -> BoxRecord:
        """Return it with all of its log, read. Raises as `pieces`."""
        try:
            return replace(self, _held=b"".join(self.pieces()))
        finally:
            self.close()

    def close(self) -> None:
        self._stream.close()


def ask_record(box: AskedBox, run: Run, *, at: int, most: int) -> BoxRecord:
    """Ask for the record, and the log from byte `at` on: its newest part if that is over `most`.
    What the box redacts keeps its number of bytes. Raises LinkLost, NoAnswer."""
    mark = secrets.token_hex(16)
    asked: dict[str, object] = {"ask": "record", "file": run.log}
    asked |= {"mark": mark, "notes": NOTES, "most_note": _MOST_NOTE, "at": at, "most": most}
    there = BoxRedaction(box.redacted_there, same_length=True)
    query = ask("runs.logs", asked, there, workdir=box.workdir)
    stream = stream_script(box.wire, query)
    try:
        return _read_record(stream, f"\n{mark} ".encode(), most, box.wire)
    except BaseException:
        stream.close()
        raise


def _read_record(stream: AnswerStream, mark: bytes, most: int, wire: Wire) -> BoxRecord:
    """Read up to where the log begins."""
    answer, log = bytearray(), mark + b"log "
    while True:
        found = answer.find(log)
        end = answer.find(b"\n", found + len(log)) if found >= 0 else -1
        if end >= 0:
            break
        piece = stream.read(PIECE)
        if not piece:
            raise _cut(wire)
        answer += piece
        if len(answer) > _MOST_NOTES + PIECE:
            raise NoAnswer("it tells more of a run than there is.", where=wire.label, hint=_LOOK)
    words = bytes(answer[found + len(log) : end]).partition(b" ")
    begin, length = answer_number(words[0]), answer_number(words[2])
    if begin is None or length is None or length > most:
        raise NoAnswer("what it tells of a run's log makes no sense.", where=wire.label, hint=_LOOK)
    parts = (part.partition(b"\n") for part in bytes(answer[:found]).split(mark)[1:])
    notes = {name.decode("ascii", "replace"): content for name, _, content in parts}
    metric = notes.pop("metric", b"").partition(b"\n")[0].partition(b"\t")[2]
    kept = {name: notes[name] for name in NOTES if name in notes}
    return BoxRecord(kept, metric, begin, length, stream, bytes(answer[end + 1 :]), wire)


def _cut(wire: Wire) -> NoAnswer | LinkLost:
    if not wire.alive():
        return LinkLost(wire.label)
    return NoAnswer("it did not give all of a run's log.", where=wire.label, hint=_LOOK)


_LOOK = "Log in with ssh and look at what it does."
MAX_LINE = 256 * 1024  # bytes of one sample; longer lines are rejected
_MOST_TEXT = 500


def _one_line(text: object) -> object:
    return " ".join(sanitize(text).split())[:_MOST_TEXT] if isinstance(text, str) else text


Text = Annotated[str, BeforeValidator(_one_line)]
Count = Annotated[int, Field(ge=0, lt=1 << 60)]
Level = Annotated[float, Field(ge=-1000, le=10_000_000)]


def _low_disk(told: object) -> LowDisk | None:
    return parse_low_disk(told.encode("utf-8", "replace")) if isinstance(told, str) else None


class _BoxPart(BaseModel):
    model_config = ConfigDict(
        frozen=True, strict=True, extra="ignore", allow_inf_nan=False, defer_build=True
    )


class Process(_BoxPart):
    """A process that computes on a GPU; the name is empty if it is in another container."""

    pid: Count
    name: Text
    memory: Count | None = None


class Card(_BoxPart):
    """One GPU. Bytes, watts, °C, MHz, percent; None if not reported."""

    index: Annotated[int, Field(ge=0, lt=1024)]
    name: Text | None = None
    uuid: Text | None = None
    load: Level | None = None
    memory_used: Count | None = None
    memory_total: Count | None = None
    power: Level | None = None
    power_limit: Level | None = None
    temperature: Level | None = None
    clock: Count | None = None
    clock_max: Count | None = None
    throttle: Count | None = None
    processes: Annotated[tuple[Process, ...], Field(max_length=64)] = ()
    error: Annotated[int, Field(ge=0, lt=100_000)] | None = None
    """NVML's error code, if the GPU doesn't answer."""


class Machine(_BoxPart):
    """The box itself. Bytes and percent."""

    cpus: Count | None = None
    cpu: Level | None = None
    memory_used: Count
    memory_total: Count
    disk_free: Count
    disk_total: Count


class RunNow(_BoxPart):
    """A run, the last line of its log, and the last line with a metric."""

    name: Text
    repo: Text
    state: RunState
    rc: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    last: Text
    metric: Text = ""


class Sample(_BoxPart):
    """State of a box at one moment; `t` is in seconds on its own clock."""

    v: Literal[1] = 1
    t: Annotated[float, Field(ge=0, le=1e12)] = 0.0
    missing: bool = False  # whether the box can't be sampled, since it was never set up
    host: Machine | None = None
    gpus: Annotated[tuple[Card, ...], Field(max_length=128)] = ()
    error: Annotated[int, Field(ge=0, lt=100_000)] | None = None
    """NVML's error code, if it can't be used."""
    run: RunNow | None = None
    """The newest."""
    others: Annotated[tuple[RunNow, ...], Field(max_length=16)] = ()
    """Older ones that are running."""
    low: Annotated[LowDisk | None, BeforeValidator(_low_disk)] = None
    """A disk that will soon be full, as a live run is told of it."""


def parse_sample(line: bytes) -> Sample | None:
    """Parse a line; None if it is not a valid sample. Never raises."""
    if len(line) > MAX_LINE:
        return None
    try:
        return Sample.model_validate_json(line)
    except (ValidationError, RecursionError):
        return None


class SampleLines:
    """Split a byte stream into samples; no more than `MAX_LINE` of an endless line is kept."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[Sample]:
        *whole, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[: MAX_LINE + 1]
        return [sample for sample in map(parse_sample, whole) if sample is not None]


ANSWER_S = 120.0
_MOST_EVENTS = 20_000

Value = Annotated[float, Field(ge=-1e300, le=1e300)]
Seconds = Annotated[float, Field(ge=0, le=1e12)]


class MetricCurve(_BoxPart):
    """The values of one metric, by step, epoch, or seconds since the run started.

    If `count` is larger than the number of points, each point is the mean of neighbours. `odd` is
    the position on the axis of the first value that is not a number, as in `loss nan`. `least`,
    `most` and `last` are the values themselves with their places; earlier versions noted none.
    """

    name: Text
    axis: Literal["step", "epoch", "seconds"]
    points: Annotated[tuple[tuple[Value, Value], ...], Field(max_length=4000)]
    count: Count
    odd: Value | None = None
    least: tuple[Value, Value] | None = None
    most: tuple[Value, Value] | None = None
    last: tuple[Value, Value] | None = None

    @property
    def end(self) -> tuple[float, float] | None:
        """Place and value of the last one; None if no value was a number."""
        return self.last or next(reversed(self.points), None)

    def best(self, *, least: bool) -> tuple[float, float] | None:
        """Return place and value of the least, or of the largest one."""
        if marked := self.least if least else self.most:
            return marked
        choose = min if least else max
        return choose(self.points, key=lambda point: point[1], default=None)

    def place(self, at: float) -> str:
        """Say where on its axis that is, as in `at step 400`."""
        return f"after {duration(at)}" if self.axis == "seconds" else f"at {self.axis} {at:,.6g}"


class SampledGpu(_BoxPart):
    index: Annotated[int, Field(ge=0, lt=1024)]
    name: Text | None = None
    memory_total: Count | None = None
    power_limit: Level | None = None


GpuRow = tuple[Level | None, Count | None, Level | None, Level | None]
"""Load, used memory, power, temperature."""
SampleRow = tuple[
    Seconds, Level | None, Count | None, Annotated[tuple[GpuRow | None, ...], Field(max_length=128)]
]
"""Time on the box's clock, CPU load, used memory, and a row for each GPU."""


class SampleHead(_BoxPart):
    """The constant properties of a sampled box."""

    cpus: Count | None = None
    memory_total: Count | None = None
    gpus: Annotated[tuple[SampledGpu, ...], Field(max_length=128)] = ()


class RunHistory(_BoxPart):
    """The whole history. `events` and `samples` are raw lines, parsed by the methods below."""

    events: Annotated[tuple[str, ...], Field(max_length=_MOST_EVENTS)] = ()
    verdict: Annotated[str, Field(max_length=1 << 20)] = ""
    samples: Annotated[tuple[str, ...], Field(max_length=10_000)] = ()
    curves: Annotated[tuple[MetricCurve, ...], Field(max_length=100)] = ()
    read: Count = 0
    of: Count = 0
    lines: Count = 0
    changes: Annotated[tuple[Text, ...], Field(max_length=2000)] = ()
    subject: Text = ""
    edited: Annotated[tuple[Text, ...], Field(max_length=200)] = ()
    """Tracked files that were edited on the box when it began."""
    disk: Annotated[str, Field(max_length=4096)] = ""
    """The file about a disk that was about to be full, if the run ended so."""
    results: Annotated[tuple[tuple[Text, Count], ...], Field(max_length=2000)] = ()

    def read_events(self) -> list[Event]:
        """Parse the events of the setup before the run."""
        found = (events.parse_event(line.encode()) for line in self.events)
        return [event for event in found if event]

    def read_samples(self) -> tuple[SampleHead, list[SampleRow]]:
        """Parse the monitor's samples, if there are any; invalid lines are left out."""
        head, *rows = self.samples or ("",)
        found = filter(None, (_read_line(_sample_row(), row) for row in rows))
        return _read_line(TypeAdapter(SampleHead), head) or SampleHead(), [*found]


def ask_history(box: AskedBox, run: Run) -> RunHistory:
    """Ask the box. Raises LinkLost, NoAnswer, BoxLacksError if its program can't tell."""
    there = BoxRedaction(box.redacted_there)
    query = ask("report.run_history", {"run": run.path}, there, workdir=box.workdir)
    answer = run_script(box.wire, query, timeout=ANSWER_S)
    if not answer.strip() or answer.startswith(b'{"kind"'):  # as `ask` ends without its program
        raise BoxLacksError(
            "what would read the run there is missing, or of another version.",
            where=box.wire.label,
            hint="It comes with a setup: boxstrap setup",
        )
    try:
        return RunHistory.model_validate_json(answer)
    except (ValidationError, RecursionError):
        raise NoAnswer(
            "what it says of the run makes no sense.",
            where=box.wire.label,
            hint="Its log: boxstrap logs. Log in with ssh and see what the box does.",
        ) from None


R = TypeVar("R")


@cache
def _sample_row() -> TypeAdapter[SampleRow]:
    return TypeAdapter(SampleRow, config=ConfigDict(strict=True, allow_inf_nan=False))


def _read_line(kind: TypeAdapter[R], line: str) -> R | None:
    try:
        return kind.validate_json(line)
    except (ValidationError, RecursionError, ValueError):
        return None
