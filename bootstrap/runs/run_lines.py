"""Runs as text: a line each, and below a failed one the reason. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from bootstrap.protocol.run import Run
from bootstrap.protocol.run_details import UsedGpu
from bootstrap.runs.failure import Failure
from bootstrap.runs.gpu_use import gpu_use, gpus_in_words
from bootstrap.runs.selection import qualified, repository_names
from bootstrap.text.sanitize import sanitize
from bootstrap.text.sizes import duration, size, spent_in_words
from bootstrap.ui.layout import aligned

_SHOWN = 10
"""Number of ended runs shown; runs that are live or wait for their turn are always shown."""
_LINE = 160
"""Characters of a line of a log."""
_WIDEST = 60
"""Characters of a command; --json has all of it."""
_NEXT = {
    "died": "its log and results are still there; to start it again: boxstrap setup --restart",
    "waiting": "the next boxstrap setup of its work begins it",
}
"""What to do about a run that died, or never started."""


def how_to_resume(run: Run, program: str = "boxstrap") -> str:
    """How to resume a run that died, if it has a command for that."""
    return f"to resume it: {program} run --resume {run.name}"


def run_lines(  # noqa: PLR0913, PLR0917 - all from a box's answer
    runs: Sequence[Run],
    now: int,
    gpus: Sequence[UsedGpu],
    failures: Mapping[Run, Failure],
    metrics: Mapping[Run, str] = MappingProxyType({}),
    price: float | None = None,
) -> list[str]:
    """Newest first; with the log's end for the newest failed run, a sentence for other failed ones.

    `metrics` has the newest line with a metric of each run; `price` is per hour of the box.
    """
    names = repository_names({run.repo_key for run in runs})
    shown = _chosen(runs)
    rows = [
        (
            *_cells(run, qualified(run, names), now),
            gpus_in_words(run, gpu_use(run, runs, gpus)),
            spent_in_words(run.seconds(now), price),
            *_about(run, now),
        )
        for run in shown
    ]
    empty = {at for at, column in enumerate(zip(*rows, strict=True)) if not any(column)}
    kept = (tuple(cell for at, cell in enumerate(row) if at not in empty) for row in rows)
    newest = next((run for run in shown if run in failures), None)
    lines: list[str] = []
    for run, line in zip(shown, aligned(kept), strict=True):
        lines += [line, *([f"      {metrics[run]}"] if run in metrics else [])]
        lines += _below(run, failures.get(run), whole=run is newest)
    if len(runs) > len(shown):
        lines.append(f"  and {len(runs) - len(shown)} older ones: --json has all")
    return lines


def metric_lines(
    runs: Sequence[Run], said: Mapping[str, bytes], redact: Callable[[str], str]
) -> dict[Run, str]:
    """Return each run's newest line with a metric, sanitized; `said` is by `KEY/NAME`."""
    found = ((run, said.get(f"{run.repo_key}/{run.name}")) for run in runs)
    return {run: " ".join(redact(sanitize(line)).split())[:_LINE] for run, line in found if line}


def _chosen(runs: Sequence[Run]) -> list[Run]:
    over = [run for run in runs if not run.goes_on]
    left_out = set(over[_SHOWN:])
    return [run for run in runs if run not in left_out]


def _cells(run: Run, called: str, now: int) -> tuple[str, ...]:
    where = f" in {run.tree}" if run.tree else ""
    return (f"  {called}{where}", run.outcome(), _when(run, now))


def _about(run: Run, now: int) -> tuple[str, ...]:
    quiet = f", last wrote {_ago(run.written, now)}" if run.state == "running" else ""
    log = f"log {size(run.log_bytes)}{quiet}"
    commit = run.commit[:12] + ("+" if run.with_changes else "")
    command = run.typed if len(run.typed) <= _WIDEST else f"{run.typed[: _WIDEST - 1]}…"
    return (log, commit, command)


def _when(run: Run, now: int) -> str:
    """Return since when it is in its state, and how long it took."""
    if run.state == "queued":
        return f"made {_ago(run.started, now)}"
    took = run.seconds(now)
    if run.over and took is not None:
        return f"ended {_ago(run.over, now)}, ran {duration(took)}"
    return f"started {_ago(run.begun or run.started, now)}"


def _ago(moment: int, now: int) -> str:
    return f"{duration(max(0, now - moment))} ago"


def _below(run: Run, failure: Failure | None, *, whole: bool) -> list[str]:
    """Return why it failed, and what can be done."""
    lines = []
    if failure:
        # Skip it if the log lines below repeat it.
        is_said = whole and failure.what in failure.lines
        lines += [failure.what] if failure.what and not is_said else []
        lines += [f"| {line}" for line in failure.lines] if whole else []
        lines += [failure.hint] if failure.hint and whole else []
    if run.uploaded:
        lines.append(run.uploaded.sentence())
    if run.can_resume:
        lines.append(f"its log and results are still there; {how_to_resume(run)}")
    elif run.state in _NEXT:
        lines.append(_NEXT[run.state])
    return [f"      {line}" for line in lines]
