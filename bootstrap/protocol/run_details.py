"""What `status` asks beyond the probe, in the same exchange: ends of the logs of failed runs, the
newest metric of others, GPU use while a run is alive, and trees beside the main ones."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bootstrap.box.metrics import LINE
from bootstrap.link.exchange import exchange
from bootstrap.link.wire import Wire
from bootstrap.protocol.probe import BoxState, read
from bootstrap.protocol.query import BoxRedaction, build_query

if TYPE_CHECKING:
    from bootstrap.protocol.trees import TreeUse

MOST_ENDS = 8
"""At most so many failed runs (the newest) with their log's end, and others with their metric."""
END_BYTES = 6000
"""For each run: enough for the tracebacks of some ranks; all of them fit in two round trips."""
_METRIC_BYTES = 1000
_MOST_BYTES = 256 * 1024
_MOST_GPUS = 128
_GPUS_S = 5
"""Time limit for reading the GPUs, in seconds: a driver may hang."""


@dataclass(frozen=True)
class UsedGpu:
    """A GPU at one moment: percent and bytes; None if not reported."""

    index: int
    uuid: str
    load: int | None
    memory_used: int | None
    memory_total: int | None
    held: Mapping[str, int]
    """Memory used by each run, if the box can tell which run a process belongs to."""


@dataclass(frozen=True)
class RunDetails:
    """Details of runs, by `KEY/NAME`. Text from their logs is not sanitized yet."""

    log_ends: Mapping[str, bytes] = field(default_factory=dict)
    metrics: Mapping[str, bytes] = field(default_factory=dict)
    """The last line with a metric."""
    gpus: tuple[UsedGpu, ...] = ()
    """Set if a run is alive and the GPUs answer."""
    trees: tuple[TreeUse, ...] = ()
    """The trees beside the main ones."""


NO_DETAILS = RunDetails()


def ask_details(
    wire: Wire, *, workdir: str, repo_key: str, repo_root: str, redact: Sequence[str]
) -> tuple[BoxState, RunDetails]:
    """Probe and get the details; the box redacts the secrets in `redact`. Raises as `probe`."""
    mark = secrets.token_hex(16)
    query = build_query(
        "status",
        BoxRedaction(redact),
        workdir=workdir,
        repo_key=repo_key,
        repo_root=repo_root,
        script_id="",
        hint_names="",
        hint_files="",
        mark=mark,
        most=MOST_ENDS,
        bytes=END_BYTES,
        patience=_GPUS_S,
        usual_metrics=LINE,
    )
    answer, *parts = exchange(wire, query, timeout=60).split(f"\n{mark} ".encode())
    return read(answer, wire.label), parse_details(parts)


def parse_details(parts: Sequence[bytes]) -> RunDetails:
    """Parse the parts of an answer; the first line is a word and perhaps a run, then its data."""
    ends: dict[str, bytes] = {}
    metrics: dict[str, bytes] = {}
    gpus: tuple[UsedGpu, ...] = ()
    trees: tuple[TreeUse, ...] = ()
    for part in parts[: MOST_ENDS + 3]:
        head, _, told = part.partition(b"\n")
        word, _, path = head.decode("utf-8", "replace").partition(" ")
        if word == "log":
            ends[path] = told[-END_BYTES:]
        elif word == "metrics":
            metrics = _metrics(told)
        elif word == "gpus":
            gpus = _gpus(told.partition(b"\n")[0][:_MOST_BYTES])
        elif word == "trees" and told.strip():
            from bootstrap.protocol.trees import parse_uses

            trees = parse_uses(told)
    return RunDetails(ends, metrics, gpus, trees)


def _metrics(told: bytes) -> dict[str, bytes]:
    """Parse lines of a run, a tab, and the last line of its log with a metric."""
    rows = (row.partition(b"\t") for row in told.split(b"\n")[:MOST_ENDS])
    return {run.decode("utf-8", "replace"): line[:_METRIC_BYTES] for run, _, line in rows if line}


def _gpus(sample: bytes) -> tuple[UsedGpu, ...]:
    """Parse the GPUs in a line of `top_stream.py`; pydantic would take longer than the query."""
    try:
        rows = json.loads(sample)["gpus"][:_MOST_GPUS]
        return tuple(gpu for gpu in map(_gpu, rows) if gpu)
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return ()


def _gpu(row: Mapping[str, object]) -> UsedGpu | None:
    index, uuid, processes = row.get("index"), row.get("uuid"), row.get("processes", [])
    held: dict[str, int] = {}
    for process in processes if isinstance(processes, list) else []:
        if isinstance(process.get("run"), str) and process["run"]:
            held[process["run"]] = held.get(process["run"], 0) + (
                _count(process.get("memory")) or 0
            )
    if row.get("error") is not None or _count(index) is None:
        return None
    return UsedGpu(
        index=_count(index) or 0,
        uuid=uuid if isinstance(uuid, str) else "",
        load=_count(row.get("load")),
        memory_used=_count(row.get("memory_used")),
        memory_total=_count(row.get("memory_total")),
        held=held,
    )


def _count(value: object) -> int | None:
    """Return the value if it is a plausible non-negative integer, else None."""
    is_one = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60
    return value if is_one and isinstance(value, int) else None
