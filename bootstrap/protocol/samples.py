"""Samples of a box, lines of `bootstrap/box/runs/top_stream.py`: bounded and sanitized."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from bootstrap.protocol.run import RunState
from bootstrap.text.sanitize import sanitize

MAX_LINE = 256 * 1024
"""Bytes of one sample; longer lines are rejected."""
_MOST_TEXT = 500


def _one_line(text: object) -> object:
    return " ".join(sanitize(text).split())[:_MOST_TEXT] if isinstance(text, str) else text


Text = Annotated[str, BeforeValidator(_one_line)]
Count = Annotated[int, Field(ge=0, lt=1 << 60)]
Level = Annotated[float, Field(ge=-1000, le=10_000_000)]


class _SamplePart(BaseModel):
    model_config = ConfigDict(
        frozen=True, strict=True, extra="ignore", allow_inf_nan=False, defer_build=True
    )


class Process(_SamplePart):
    """A process that computes on a GPU; the name is empty if it is in another container."""

    pid: Count
    name: Text
    memory: Count | None = None


class Card(_SamplePart):
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


class Machine(_SamplePart):
    """The box itself. Bytes and percent."""

    cpus: Count | None = None
    cpu: Level | None = None
    memory_used: Count
    memory_total: Count
    disk_free: Count
    disk_total: Count


class Newest(_SamplePart):
    """The newest run, the last line of its log, and the last line with a metric."""

    name: Text
    repo: Text
    state: RunState
    rc: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    last: Text
    metric: Text = ""


class Sample(_SamplePart):
    """State of a box at one moment; `t` is in seconds on its own clock."""

    v: Literal[1] = 1
    t: Annotated[float, Field(ge=0, le=1e12)] = 0.0
    missing: bool = False
    """Whether the box can't be sampled, since it was never set up."""
    host: Machine | None = None
    gpus: Annotated[tuple[Card, ...], Field(max_length=128)] = ()
    error: Annotated[int, Field(ge=0, lt=100_000)] | None = None
    """NVML's error code, if it can't be used."""
    run: Newest | None = None


def parse(line: bytes) -> Sample | None:
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
        """Return the samples of the lines that this piece completes."""
        *whole, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[: MAX_LINE + 1]
        return [sample for sample in map(parse, whole) if sample is not None]
