"""A look at a box, a line of `bootstrap/box/runs/top_stream.py`: bounded and cleaned."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from bootstrap.protocol.run import RunState
from bootstrap.text.sanitize import sanitize

MAX_LINE = 256 * 1024
"""Bytes of one look; a longer line is none."""
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
    """What computes on a GPU; the name of another container's is empty."""

    pid: Count
    name: Text
    memory: Count | None = None


class Card(_SamplePart):
    """One GPU. Bytes, watts, °C, MHz, percent; None is "not told"."""

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
    """NVML's code, where it doesn't answer."""


class Machine(_SamplePart):
    """The box itself. Bytes and percent."""

    cpus: Count | None = None
    cpu: Level | None = None
    memory_used: Count
    memory_total: Count
    disk_free: Count
    disk_total: Count


class Newest(_SamplePart):
    """The run that was begun last, the last line of its log, and the last that has a metric."""

    name: Text
    repo: Text
    state: RunState
    rc: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    last: Text
    metric: Text = ""


class Sample(_SamplePart):
    """How a box is at one moment; `t` is in seconds on its own clock."""

    v: Literal[1] = 1
    t: Annotated[float, Field(ge=0, le=1e12)] = 0.0
    missing: bool = False
    """There is nothing to look with: the box was never set up."""
    host: Machine | None = None
    gpus: Annotated[tuple[Card, ...], Field(max_length=128)] = ()
    error: Annotated[int, Field(ge=0, lt=100_000)] | None = None
    """NVML's code, where it can't be asked."""
    run: Newest | None = None


def parse(line: bytes) -> Sample | None:
    """The look that a line holds; None where it is none. Never raises."""
    if len(line) > MAX_LINE:
        return None
    try:
        return Sample.model_validate_json(line)
    except (ValidationError, RecursionError):
        return None


class SampleLines:
    """Looks out of a byte stream that arrives in any pieces; of an endless line little is kept."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[Sample]:
        """The looks of the lines that this piece ends."""
        *whole, rest = (self._rest + piece).split(b"\n")
        self._rest = rest[: MAX_LINE + 1]
        return [sample for sample in map(parse, whole) if sample is not None]
