"""History of a run on its box: samples, metrics, its setup's events. Bounded and sanitized.

The query brings `bootstrap/box/report/run_history.py` along, so that runs of earlier versions can
be read too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from bootstrap import box, events
from bootstrap.errors import BoxLacksError
from bootstrap.events import Event
from bootstrap.link.errors import NoAnswer
from bootstrap.link.exchange import exchange
from bootstrap.link.wire import Wire
from bootstrap.protocol.query import BoxRedaction, build_query
from bootstrap.protocol.run import Run
from bootstrap.protocol.samples import Count, Text

ANSWER_S = 120.0
_MOST_EVENTS = 20_000

Value = Annotated[float, Field(ge=-1e300, le=1e300)]
Seconds = Annotated[float, Field(ge=0, le=1e12)]
Level = Annotated[float, Field(ge=-1000, le=10_000_000)]


class _HistoryPart(BaseModel):
    model_config = ConfigDict(
        frozen=True, strict=True, extra="ignore", allow_inf_nan=False, defer_build=True
    )


class MetricCurve(_HistoryPart):
    """The values of one metric, by step, epoch, or seconds since the run started.

    If `count` is larger than the number of points, each point is the mean of neighbours. `odd` is
    the position on the axis of the first value that is not a number, as in `loss nan`.
    """

    name: Text
    axis: Literal["step", "epoch", "seconds"]
    points: Annotated[tuple[tuple[Value, Value], ...], Field(max_length=4000)]
    count: Count
    odd: Value | None = None


class SampledGpu(_HistoryPart):
    """A sampled GPU: its constant properties."""

    index: Annotated[int, Field(ge=0, lt=1024)]
    name: Text | None = None
    memory_total: Count | None = None
    power_limit: Level | None = None


GpuRow = tuple[Level | None, Count | None, Level | None, Level | None]
"""Load, used memory, power, temperature."""
SampleRow = tuple[
    Seconds,
    Level | None,
    Count | None,
    Annotated[tuple[GpuRow | None, ...], Field(max_length=128)],
]
"""Time on the box's clock, CPU load, used memory, and a row for each GPU."""


class SampleHead(_HistoryPart):
    """The constant properties of a sampled box."""

    cpus: Count | None = None
    memory_total: Count | None = None
    gpus: Annotated[tuple[SampledGpu, ...], Field(max_length=128)] = ()


class RunHistory(_HistoryPart):
    """The whole history. `events` and `samples` are raw lines, parsed by the methods below."""

    python: bool = True
    """Whether the box has a Python that could read the rest."""
    events: Annotated[tuple[str, ...], Field(max_length=_MOST_EVENTS)] = ()
    verdict: Annotated[str, Field(max_length=1 << 20)] = ""
    samples: Annotated[tuple[str, ...], Field(max_length=10_000)] = ()
    curves: Annotated[tuple[MetricCurve, ...], Field(max_length=100)] = ()
    read: Count = 0
    of: Count = 0
    lines: Count = 0
    changes: Annotated[tuple[Text, ...], Field(max_length=2000)] = ()
    subject: Text = ""
    results: Annotated[tuple[tuple[Text, Count], ...], Field(max_length=2000)] = ()

    def read_events(self) -> list[Event]:
        """Parse the events of the setup before the run."""
        found = (events.parse(line.encode()) for line in self.events)
        return [event for event in found if event]

    def read_samples(self) -> tuple[SampleHead, list[SampleRow]]:
        """Parse the monitor's samples, if there are any; invalid lines are left out."""
        head, *rows = self.samples or ("",)
        found = (_read(_sample_row(), row) for row in rows)
        return _read(TypeAdapter(SampleHead), head) or SampleHead(), [row for row in found if row]


def ask_history(wire: Wire, run: Run, *, workdir: str, redact: Sequence[str]) -> RunHistory:
    """Ask the box, which redacts the secrets that `redact` names. Raises LinkLost, NoAnswer,
    BoxLacksError if it has no Python.
    """
    query = build_query(
        "report",
        BoxRedaction(redact),
        workdir=workdir,
        repo_key=run.repo_key,
        name=run.name,
        program=_program(),
    )
    answer = exchange(wire, query, timeout=ANSWER_S)
    try:
        history = RunHistory.model_validate_json(answer)
    except (ValidationError, RecursionError):
        raise NoAnswer(
            "what it says of the run makes no sense.",
            where=wire.label,
            hint="Its log: boxstrap logs. Log in with ssh and see what the box does.",
        ) from None
    if not history.python:
        raise BoxLacksError(
            "there is no Python on this box that could read what the run left.",
            where=wire.label,
            hint="It comes with a setup: boxstrap setup",
        )
    return history


@cache
def _program() -> str:
    """Return the program for the box: the two modules joined and minified."""
    from bootstrap.render.pack import bare_python  # imported only when a report is asked for

    folder = Path(box.__file__).parent
    texts = [(folder / f"{name}.py").read_text(encoding="utf-8") for name in _MODULES]
    return "\n".join(bare_python(_OF_OURS.sub("", text)) for text in texts)


_MODULES = ("metrics", "report/run_history")
_OF_OURS = re.compile(r"^from \.\..* import .*\n", re.MULTILINE)
R = TypeVar("R")


@cache
def _sample_row() -> TypeAdapter[SampleRow]:
    return TypeAdapter(SampleRow, config=ConfigDict(strict=True, allow_inf_nan=False))


def _read(kind: TypeAdapter[R], line: str) -> R | None:
    try:
        return kind.validate_json(line)
    except (ValidationError, RecursionError, ValueError):
        return None
