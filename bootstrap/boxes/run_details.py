"""What `status` asks beyond the probe, in the same exchange."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from bootstrap.boxes.answers import BoxDocument, documents
from bootstrap.boxes.disk import MOST_BYTES, LowDisk, parse_low_disk
from bootstrap.boxes.probe import BoxState, probe_query, read_probe
from bootstrap.boxes.run import Run, is_name
from bootstrap.boxes.trees import RiskyFolder, TreeUse, read_risks, read_uses
from bootstrap.errors import NotSafeError
from bootstrap.link.exchange import answer_number, run_script
from bootstrap.link.wire import Wire
from bootstrap.onbox.run_folder import END_BYTES, MOST_ENDS
from bootstrap.sanitize import sanitize
from bootstrap.sizes import grouped_number, size
from bootstrap.value import Document, dataclass, field, replace

if TYPE_CHECKING:
    from bootstrap.link.record import KnownBox

_METRIC_BYTES = 1000
_GIB = 2**30
_LINE = 160  # characters of a line of a log


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
class GpuUse:
    """One GPU of a run: how busy it is, in percent, and its memory in bytes."""

    index: int
    load: int | None
    memory_used: int | None  # used by the run, if the box reports that; else by all processes
    memory_total: int | None


def gpu_use(run: Run, runs: Sequence[Run], gpus: Sequence[UsedGpu]) -> tuple[GpuUse, ...]:
    """Return the GPUs that a live run's processes use. If those can't be seen (in a container the
    driver sees other pids): the GPUs it was given, else all if no other run is live, else none."""
    if run.state != "running":
        return ()
    if own := [gpu for gpu in gpus if run.path in gpu.held]:
        return tuple(_use(gpu, gpu.held[run.path] or gpu.memory_used) for gpu in own)
    given = run.gpus.split(",") if run.gpus else []
    alone = sum(one.state == "running" for one in runs) == 1
    return tuple(
        _use(gpu, gpu.memory_used)
        for gpu in gpus
        if str(gpu.index) in given or gpu.uuid in given or (alone and not given)
    )


def _use(gpu: UsedGpu, memory_used: int | None) -> GpuUse:
    return GpuUse(gpu.index, gpu.load, memory_used, gpu.memory_total)


def gpus_in_words(run: Run, uses: Sequence[GpuUse]) -> str:
    """`GPU 0: 97 %, 41.2 of 80.0 GiB`; for several GPUs the mean load and the total memory. If the
    use is unknown, or the run waits, the GPUs it was given."""
    if not uses:
        return f"GPU {run.gpus}" if run.gpus and run.goes_on else ""
    loads = [use.load for use in uses if use.load is not None]
    parts = [f"{sum(loads) / len(loads):.0f} %"] if loads else []
    used = [use.memory_used for use in uses if use.memory_used is not None]
    total = [use.memory_total for use in uses if use.memory_total is not None]
    if used and total:
        parts.append(f"{sum(used) / _GIB:.1f} of {sum(total) / _GIB:.1f} GiB")
    numbers = ",".join(str(use.index) for use in uses)
    return f"{'GPU' if len(uses) == 1 else 'GPUs'} {numbers}: {', '.join(parts) or 'does not say'}"


@dataclass(frozen=True)
class RunDetails:
    """Details of runs, by `KEY/NAME`. Text from their logs is not sanitized yet."""

    log_ends: Mapping[str, bytes] = field(default_factory=dict)
    metrics: Mapping[str, bytes] = field(default_factory=dict)  # the last line with a metric
    disks: Mapping[str, LowDisk] = field(default_factory=dict)
    """Of live runs whose disk will soon be full, and of the last one that failed, if it is."""
    untold: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Whom it could not tell of what, and why, in words."""
    results: Mapping[str, ResultsThere] = field(default_factory=dict)
    """Of runs that are over."""
    gpus: tuple[UsedGpu, ...] = ()  # set if a run is alive and the GPUs answer
    trees: tuple[TreeUse, ...] = ()  # the trees beside the main ones
    at_risk: tuple[tuple[RiskyFolder, ...], ...] = ()
    """Of each tree of this repository, what would go with the box."""

    def metric_lines(self, redact: Callable[[str], str]) -> dict[str, str]:
        """Return the newest line with a metric of each run, by `KEY/NAME`, sanitized."""
        said = self.metrics.items()
        return {path: " ".join(redact(sanitize(line)).split())[:_LINE] for path, line in said}


NO_DETAILS = RunDetails()


def ask_details(
    wire: Wire, workdir: str, repo_key: str, repo_root: str, *, redact: Sequence[str]
) -> tuple[BoxState, RunDetails]:
    """Probe and get the details; the box redacts the secrets in `redact`. Raises as `probe`."""
    details = json.dumps({"redact": [*redact]})
    query = probe_query(workdir, repo_key, repo_root, details=details)
    answer = run_script(wire, query, timeout=60)
    return read_probe(answer, wire.label), parse_details(answer)


_MOST_EACH = 64


def parse_details(answer: bytes) -> RunDetails:
    """Parse what `onbox/runs/status.py` tells beside the runs."""
    kinds: dict[str, list[BoxDocument]] = {}
    for said in documents(answer):
        kinds.setdefault(said.kind, []).append(said)

    def of(kind: str, most: int = _MOST_EACH) -> dict[str, BoxDocument]:
        return {said.text("run"): said for said in kinds.get(kind, [])[:most]}

    lows = {run: parse_low_disk(said.block("text", MOST_BYTES)) for run, said in of("disk").items()}
    gpus = [row for said in kinds.get("gpus", [])[:1] for row in said.rows("gpus")]
    return RunDetails(
        log_ends={run: said.block("text", END_BYTES) for run, said in of("log", MOST_ENDS).items()},
        metrics={
            run: said.block("text", _METRIC_BYTES) for run, said in of("metric", MOST_ENDS).items()
        },
        disks={run: low for run, low in lows.items() if low},
        untold={run: _untold(said.block("text", 2000)) for run, said in of("untold").items()},
        results={run: _results(said) for run, said in of("results", _MOST_RUNS).items()},
        gpus=tuple(gpu for gpu in map(_gpu, gpus) if gpu),
        trees=read_uses(kinds.get("tree", [])),
        at_risk=read_risks(kinds.get("risk", [])),
    )


def _untold(told: bytes) -> tuple[str, ...]:
    """Parse lines of `tell.py`: what, who, when, `failed`, and why."""
    rows = (sanitize(line)[:200].split(" ", 4) for line in told.splitlines())
    return tuple(f"could not tell {row[1]} ({row[0]}): {row[4]}" for row in rows if len(row) == 5)


def _gpu(row: BoxDocument) -> UsedGpu | None:
    """Read a GPU, as `top_stream.py` samples it."""
    held: dict[str, int] = {}
    for process in row.rows("processes"):
        if run := process.text("run"):
            held[run] = held.get(run, 0) + (process.count("memory") or 0)
    index = row.count("index")
    if row.has("error") or index is None:
        return None
    return UsedGpu(
        index=index,
        uuid=row.text("uuid"),
        load=row.count("load"),
        memory_used=row.count("memory_used"),
        memory_total=row.count("memory_total"),
        held=held,
    )


_CANT_KEEP = {
    "large": "too large to be copied at once",
    "room": "the disk has no room for a copy",
    "slow": "the disk is too slow for a copy at once",
    "unread": "they can't be read",
}
"""Why no copy was made, by the box's word."""
_MOST_RUNS, _MOST_NAMES = 10_000, 20


@dataclass(frozen=True)
class ResultsThere(Document):
    """Where the results of one run are that is over, as its box tells."""

    KEYS = "where, files, bytes, kept_bytes, lost_files, overwritten_by"

    is_home: bool  # whether a verified pull, by any machine, brought all of them
    files: int
    bytes: int
    kept_bytes: int  # of these, bytes of copies made before a later run began
    lost_files: int  # files that are not on the box any more: overwritten or removed
    overwritten_by: tuple[str, ...]  # the runs that are known to have done that
    is_elsewhere: bool = False  # whether another machine pulled them, and this one did not

    @property
    def where(self) -> str:
        """Return home, box, partly (on the box), lost, or none."""
        if not self.files or self.is_home:
            return "home" if self.files else "none"
        if not self.lost_files:
            return "box"
        return "partly" if self.lost_files < self.files else "lost"

    def __str__(self) -> str:
        if self.where in ("home", "none"):
            pulled = "results pulled elsewhere" if self.is_elsewhere else "results pulled"
            return pulled if self.files else "no results"
        if self.lost_files:
            by = ", ".join(self.overwritten_by)
            how = f"overwritten by {by}" if by else "lost"
            return (
                f"{grouped_number(self.lost_files)} of {grouped_number(self.files)} results {how}"
            )
        return f"results on the box, {size(self.bytes)}" + (" (kept)" if self.kept_bytes else "")


def seen_from(box: KnownBox | None, run: Run, results: ResultsThere | None) -> ResultsThere | None:
    """Return them with whether they came to this machine, which knows the `box`, or elsewhere."""
    if box is None or results is None:
        return results
    from bootstrap.boxes.at_home import find_kept  # late: a run that begins needs none of it

    kept = find_kept(box, run)
    return replace(results, is_elsewhere=results.is_home and not (kept and kept.results))


def _results(said: BoxDocument) -> ResultsThere:
    files, lost = said.count("files") or 0, said.count("lost_files") or 0
    is_lost = bool(files and lost) and not said.flag("is_home")  # nothing is lost that is at home
    by = said.names("overwritten_by")[:_MOST_NAMES] if is_lost else ()
    return ResultsThere(
        is_home=said.flag("is_home"),
        files=files,
        bytes=said.count("bytes") or 0,
        kept_bytes=said.count("kept_bytes") or 0,
        lost_files=lost if is_lost else 0,
        overwritten_by=tuple(filter(is_name, by)),
    )


def results_in_the_way(said: Sequence[str], where: str, name: str) -> NotSafeError:
    """Return the error for a run that would overwrite results, as `keep_results.py` says."""
    rows = []
    for words in (line.split() for line in said):
        count, total = map(answer_number, [*words, "", "", ""][1:3])
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
