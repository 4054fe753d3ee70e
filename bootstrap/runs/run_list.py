"""`runs`: every run that this machine knows of, on boxes that are there or gone. Asks no box."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bootstrap.boxes.at_home import RunAtHome, all_kept, kept_of_repository, order, seen_on
from bootstrap.errors import UsageError
from bootstrap.link.record import KnownBox, all_boxes, ended_boxes
from bootstrap.protocol.run import repository_names
from bootstrap.repo.local import known_key
from bootstrap.text.sizes import duration
from bootstrap.transfer.destination import MANIFEST
from bootstrap.ui.layout import laid_out

_FIRST = 5
"""Cells in the first of two lines."""
_SHOWN = 40
"""Rows shown as text; --json has all."""


@dataclass(frozen=True)
class ListedRun:
    """A run, and where its results and its log are."""

    kept: RunAtHome
    is_gone: bool
    """Whether its box is gone: given back, or forgotten here."""
    results: str
    """home, partly, none, box, moved (from where they were put), lost (with the box), overwritten
    (on the box), away (pulled by another machine, or to a place unknown here)."""
    log: str
    """home, box, moved, lost."""

    def as_dict(self) -> dict[str, object]:
        """As `--json` prints it."""
        kept = self.kept
        return {
            **kept.run.as_dict(),
            "repository": kept.repository,
            "box": kept.box,
            "host": kept.host,
            "box_gone": self.is_gone,
            "seen": kept.seen,
            "seconds": kept.run.seconds(kept.box_time),
            "metric": kept.metric or None,
            "results": {
                "where": self.results,
                "files": kept.result_files,
                "bytes": kept.result_bytes,
                "place": kept.result_place or None,
            },
            "log": {
                "where": self.log,
                "bytes": kept.log_bytes,
                "dropped": kept.dropped,
                "place": kept.place or None,
            },
        }


def list_runs(place: Path, host: str | None, *, every: bool) -> list[ListedRun]:
    """Return the runs of the repository around `place`, or with `every` of all, the newest first.

    Raises UsageError outside of a repository.
    """
    live, ended = all_boxes(), ended_boxes()
    found = [*_merged([*live, *ended]).values()]
    if not every:
        key = known_key(place)
        if key is None:
            raise UsageError(
                "this is not a git repository, so it is unknown whose runs are meant.",
                where=str(place),
                hint="Run from your project, or see the runs of all: boxstrap runs --all",
            )
        found = kept_of_repository(found, key)
    if host is not None:
        found = [one for one in found if host in (one.box, one.host)]
    there = {(box.name, box.created) for box in live}
    listed = (_listed(one, (one.box, one.created) not in there) for one in found)
    return sorted(listed, key=lambda one: order(one.kept), reverse=True)


def _merged(boxes: Sequence[KnownBox]) -> dict[str, RunAtHome]:
    """Return what is here of each run, and the state that its box told last."""
    found = {one.id: one for one in all_kept()}
    for box in boxes:
        for seen in seen_on(box):
            kept = found.get(seen.id)
            if kept is None:
                found[seen.id] = seen
            elif kept.run.goes_on or not kept.seen:
                kept = dataclasses.replace(kept, run=seen.run, seen=seen.seen)
                found[seen.id] = dataclasses.replace(kept, results_there=seen.results_there)
    return found


def _listed(kept: RunAtHome, is_gone: bool) -> ListedRun:
    away = "lost" if is_gone else "box"
    has_log = kept.is_here() if kept.place else None
    results = kept.results or _THERE.get(kept.results_there, away)
    if results in ("home", "partly") and not (Path(kept.result_place) / MANIFEST).is_file():
        results = "moved"
    return ListedRun(kept, is_gone, results, away if has_log is None else _here(has_log))


def _here(is_here: bool) -> str:
    return "home" if is_here else "moved"


_THERE = {"none": "none", "home": "away", "lost": "overwritten"}
"""What a box told of results that were not pulled to here."""
_RESULTS = {
    "home": "results at home",
    "partly": "results partly at home",
    "none": "no results",
    "box": "results on the box",
    "moved": "results moved or removed here",
    "lost": "results went with the box",
    "overwritten": "results overwritten on the box",
    "away": "results pulled elsewhere",
}
_LOG = {
    "home": "log at home",
    "box": "log on the box",
    "moved": "log moved or removed here",
    "lost": "log went with the box",
}


def run_rows(
    listed: Sequence[ListedRun], now: float, width: int | None, *, every: bool
) -> list[str]:
    """Return the runs as text, each in two lines if a terminal of `width` is too narrow."""
    names = repository_names({one.kept.repository for one in listed})
    rows = []
    for one in listed[:_SHOWN]:
        kept, run = one.kept, one.kept.run
        name = f"{names[kept.repository]}/{run.name}" if every else run.name
        commit = run.commit[:12] + ("+" if run.with_changes else "")
        gone = " (gone)" if one.is_gone else ""
        where = f"{_RESULTS[one.results]}, {_LOG[one.log]}"
        when, outcome = _when(kept, now), _outcome(kept, now)
        rows.append((name, f"{kept.box}{gone}", when, outcome, commit, kept.metric[:60], where))
    lines = [line for row in laid_out(rows, width, _FIRST) for line in row]
    if len(listed) > _SHOWN:
        lines.append(f"and {len(listed) - _SHOWN} older ones: --json has all")
    return lines


def _when(kept: RunAtHome, now: float) -> str:
    """Say how long ago it started; its box's clock may differ from this one."""
    run, skew = kept.run, kept.box_time - kept.seen if kept.box_time and kept.seen else 0
    return f"{duration(max(0.0, now + skew - (run.begun or run.started)))} ago"


def _outcome(kept: RunAtHome, now: float) -> str:
    run = kept.run
    took = run.seconds(kept.box_time)
    if run.goes_on:
        return f"{run.outcome().partition(':')[0]}, as of {duration(now - kept.seen)} ago"
    ran = f", ran {duration(took)}" if took is not None else ""
    return f"{run.outcome()}{ran}"
