"""What `status` asks beyond the probe, in the same exchange: ends of the logs of failed runs, the
newest metric of others, where results are, GPU use while a run is alive, and trees beside the main
ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from bootstrap.errors import NotSafeError
from bootstrap.link.exchange import answer_number as to_number
from bootstrap.link.exchange import run_script
from bootstrap.link.wire import Wire
from bootstrap.onbox.metrics import LINE
from bootstrap.protocol.disk import LowDisk, parse_low_disk
from bootstrap.protocol.probe import BoxState, read_probe
from bootstrap.protocol.query import BoxRedaction, build_query
from bootstrap.protocol.run import is_name
from bootstrap.text.sanitize import sanitize
from bootstrap.text.sizes import grouped_number, size
from bootstrap.value import dataclass

if TYPE_CHECKING:
    from bootstrap.protocol.trees import TreeUse


MOST_ENDS = 8
"""At most so many failed runs (the newest) with their log's end, and others with their metric."""
END_BYTES = 6000
"""For each run: enough for the tracebacks of some ranks; all of them fit in two round trips."""
_METRIC_BYTES = 1000
_MOST_BYTES = 256 * 1024
_MOST_GPUS = 128
_RESULTS_S = 3
"""Time limit for looking at results, in seconds: there may be very many files."""
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
    disks: Mapping[str, LowDisk] = field(default_factory=dict)
    """Of live runs whose disk will soon be full."""
    untold: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Whom it could not tell of what, and why, in words."""
    results: Mapping[str, ResultsThere] = field(default_factory=dict)
    """Of runs that are over, unless their box is of an earlier version."""
    gpus: tuple[UsedGpu, ...] = ()
    """Set if a run is alive and the GPUs answer."""
    trees: tuple[TreeUse, ...] = ()
    """The trees beside the main ones."""


NO_DETAILS = RunDetails()


def ask_details(
    wire: Wire, *, workdir: str, repo_key: str, repo_root: str, redact: Sequence[str]
) -> tuple[BoxState, RunDetails]:
    """Probe and get the details; the box redacts the secrets in `redact`. Raises as `probe`."""
    mark = os.urandom(16).hex()
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
        results_patience=_RESULTS_S,
        usual_metrics=LINE,
    )
    answer, *parts = run_script(wire, query, timeout=60).split(f"\n{mark} ".encode())
    return read_probe(answer, wire.label), parse_details(parts)


_MOST_DISKS, _MOST_UNTOLD = 64, 64


def parse_details(parts: Sequence[bytes]) -> RunDetails:
    """Parse the parts of an answer; the first line is a word and perhaps a run, then its data."""
    ends: dict[str, bytes] = {}
    metrics: dict[str, bytes] = {}
    disks: dict[str, LowDisk] = {}
    untold: dict[str, tuple[str, ...]] = {}
    results: dict[str, ResultsThere] = {}
    gpus: tuple[UsedGpu, ...] = ()
    trees: tuple[TreeUse, ...] = ()
    for part in parts[: MOST_ENDS + _MOST_DISKS + _MOST_UNTOLD + 4]:
        head, _, told = part.partition(b"\n")
        word, _, path = head.decode("utf-8", "replace").partition(" ")
        if word == "log":
            ends[path] = told[-END_BYTES:]
        elif word == "metrics":
            metrics = _metrics(told)
        elif word == "results" and told.strip():
            results = parse_results(told)
        elif word == "disk" and (low := parse_low_disk(told)):
            disks[path] = low
        elif word == "untold":
            untold[path] = _untold(told)
        elif word == "gpus":
            gpus = _gpus(told.partition(b"\n")[0][:_MOST_BYTES])
        elif word == "trees" and told.strip():
            from bootstrap.protocol.trees import parse_uses

            trees = parse_uses(told)
    return RunDetails(ends, metrics, disks, untold, results, gpus, trees)


def _metrics(told: bytes) -> dict[str, bytes]:
    """Parse lines of a run, a tab, and the last line of its log with a metric."""
    rows = (row.partition(b"\t") for row in told.split(b"\n")[:MOST_ENDS])
    return {run.decode("utf-8", "replace"): line[:_METRIC_BYTES] for run, _, line in rows if line}


def _untold(told: bytes) -> tuple[str, ...]:
    """Parse lines of `tell.py`: what, who, when, `failed`, and why."""
    rows = (
        sanitize(line)[:200].split(" ", 4)
        for line in told[:2000].decode("utf-8", "replace").splitlines()
    )
    return tuple(f"could not tell {row[1]} ({row[0]}): {row[4]}" for row in rows if len(row) == 5)


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


_CANT_KEEP = {
    "large": "too large to be copied at once",
    "room": "the disk has no room for a copy",
    "slow": "the disk is too slow for a copy at once",
    "unread": "they can't be read",
}
"""Why no copy was made, by the box's word."""
_MOST_RUNS, _MOST_NAMES = 10_000, 20


@dataclass(frozen=True)
class ResultsThere:
    """Where the results of one run are that is over, as its box tells."""

    is_home: bool
    """Whether a verified pull, by any machine, brought all of them."""
    files: int
    bytes: int
    kept_bytes: int
    """Of these, bytes of copies made before a later run began."""
    lost_files: int
    """Files that are not on the box any more: overwritten or removed."""
    overwritten_by: tuple[str, ...]
    """The runs that are known to have done that."""

    @property
    def where(self) -> str:
        """Return home, box, partly (on the box), lost, or none."""
        if not self.files or self.is_home:
            return "home" if self.files else "none"
        if not self.lost_files:
            return "box"
        return "partly" if self.lost_files < self.files else "lost"

    def __str__(self) -> str:
        """As `status` says it."""
        if self.where in ("home", "none"):
            return "results at home" if self.files else "no results"
        if self.lost_files:
            by = ", ".join(self.overwritten_by)
            how = f"overwritten by {by}" if by else "lost"
            return (
                f"{grouped_number(self.lost_files)} of {grouped_number(self.files)} results {how}"
            )
        return f"results on the box, {size(self.bytes)}" + (" (kept)" if self.kept_bytes else "")

    def as_dict(self) -> dict[str, object]:
        """Return what `--json` prints. Nothing is lost that is at home."""
        is_lost = self.where in ("partly", "lost")
        return {
            "where": self.where,
            "files": self.files,
            "bytes": self.bytes,
            "kept_bytes": self.kept_bytes,
            "lost_files": self.lost_files if is_lost else 0,
            "overwritten_by": list(self.overwritten_by) if is_lost else [],
        }


def parse_results(told: bytes) -> dict[str, ResultsThere]:
    """Parse what `keep_results.py status` prints, by `KEY/NAME`."""
    found = {}
    for line in told.split(b"\n", _MOST_RUNS)[:_MOST_RUNS]:
        words = line.decode("utf-8", "replace").split(" ")
        counts = [to_number(word) for word in words[2:6]]
        if len(words) != 7 or None in counts:
            continue
        files, total, kept, lost = (count or 0 for count in counts)
        named = words[6].split(",")[:_MOST_NAMES] if words[6] != "-" else []
        by = tuple(filter(is_name, named))
        found[words[0]] = ResultsThere(words[1] == "home", files, total, kept, lost, by)
    return found


def results_in_the_way(said: Sequence[str], where: str, name: str) -> NotSafeError:
    """Return the error for a run that would overwrite results, as `keep_results.py` says."""
    rows = []
    for words in (line.split() for line in said):
        count, total = map(to_number, [*words, "", "", ""][1:3])
        if len(words) == 4 and count is not None and total is not None:
            run, _, _, why = words
            what = f"{run}: {grouped_number(count)} files, {size(total)}; " if run != "-" else ""
            rows.append(f"\n  {what}{_CANT_KEEP.get(why, why)}")
    return NotSafeError(
        "results of earlier runs are not home, and would be overwritten:" + "".join(rows),
        where=where,
        hint=f"Nothing was started. To go on, pull them: boxstrap pull --all --host {name}\n"
        "Or add --beside to a run: it gets a tree of its own, without those results; "
        "or --overwrite-results: they are lost.",
    )
