"""What `status` asks beyond the probe, in the same exchange: how the logs of failed runs end, the
newest metric of others, and what the GPUs do while a run lives."""

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
from bootstrap.protocol.query import RedactedThere, build_query

if TYPE_CHECKING:
    from bootstrap.protocol.trees import TreeUse

MOST_ENDS = 8
"""Failed runs of which the log's end is read, the newest; and others of which the metric is."""
END_BYTES = 6000
"""Of each: room for the tracebacks of some ranks, and all of them within two round trips."""
_METRIC_BYTES = 1000
_MOST_BYTES = 256 * 1024
_MOST_GPUS = 128
_GPUS_S = 5
"""How long a look at the GPUs may take, in seconds: a driver may hang."""


@dataclass(frozen=True)
class UsedGpu:
    """A GPU at one moment: percent and bytes; None is "not told"."""

    index: int
    uuid: str
    load: int | None
    memory_used: int | None
    memory_total: int | None
    held: Mapping[str, int]
    """What each run holds of its memory, where the box sees whose its processes are."""


@dataclass(frozen=True)
class RunDetails:
    """Runs by `KEY/NAME`. What is from their logs is not clean yet."""

    log_ends: Mapping[str, bytes] = field(default_factory=dict)
    metrics: Mapping[str, bytes] = field(default_factory=dict)
    """The last line that has a metric."""
    gpus: tuple[UsedGpu, ...] = ()
    """Where a run lives, and the box has some that answer."""
    trees: tuple[TreeUse, ...] = ()
    """Those beside the main ones."""


NO_DETAILS = RunDetails()


def ask_details(
    wire: Wire, *, workdir: str, repo_key: str, repo_root: str, redact: Sequence[str]
) -> tuple[BoxState, RunDetails]:
    """Ask both at once; the box redacts the secrets that `redact` names. Raises as `probe`."""
    mark = secrets.token_hex(16)
    query = build_query(
        "status",
        RedactedThere(redact),
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
    """Read the parts of an answer: a word, perhaps a run, and below these what is told of it."""
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
    """Lines of a run, a tab, and the last line of its log that has a metric."""
    rows = (row.partition(b"\t") for row in told.split(b"\n")[:MOST_ENDS])
    return {run.decode("utf-8", "replace"): line[:_METRIC_BYTES] for run, _, line in rows if line}


def _gpus(sample: bytes) -> tuple[UsedGpu, ...]:
    """Those of one line of `box/top_stream.py`, by hand: pydantic takes longer than the answer."""
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
    """A number that a reader on a box can mean."""
    is_one = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60
    return value if is_one and isinstance(value, int) else None
