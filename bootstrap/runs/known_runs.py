"""The runs that this machine knows of, on boxes that are there or gone. No box is asked.

What those at home took (memory, time, the measured speed of their GPUs) says what the same run
would take on another GPU, if the smoke test measured both models.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bootstrap.boxes.at_home import RunAtHome, all_kept, kept_of_repository, order, seen_on
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.run import called, repository_names
from bootstrap.errors import BoxstrapError, UnreachableError, UsageError, WhichBoxError
from bootstrap.link.forgotten import is_forgotten
from bootstrap.link.record import KnownBox, all_boxes, ended_boxes
from bootstrap.link.registry import box_by_name
from bootstrap.link.target import BoxOptions
from bootstrap.repo.local import current
from bootstrap.sizes import duration, spent, took_in_words
from bootstrap.transfer.destination import MANIFEST
from bootstrap.ui.layout import cut, laid_out
from bootstrap.ui.screen import Screen
from bootstrap.value import Document, dataclass, field, replace

if TYPE_CHECKING:
    from bootstrap.boxes.run_history import RunHistory
    from bootstrap.providers.estimate import Price

_FIRST = 5  # cells in the first of two lines
WIDEST_COMMAND = 60  # characters of a command; --json has all of it
_SHOWN = 40  # rows shown as text; --json has all


class KnownResults(NamedTuple):
    """Where a run's results are, and what of them came here: null if none was pulled to here."""

    where: str
    files: int | None
    bytes: int | None
    place: str | None


class KnownLog(NamedTuple):
    """Where a run's log is, and how much of it came here: null if none did."""

    where: str
    bytes: int | None
    dropped: int
    place: str | None


@dataclass(frozen=True)
class ListedRun(Document):
    """A run, and where its results and its log are."""

    KEYS = (
        "**kept.run, repository=kept.repository, box=kept.box, host=kept.host, "
        "box_gone=is_gone, seen=kept.seen, seconds, dollars, metric=kept.metric or None, "
        "results=known_results, log=known_log"
    )

    kept: RunAtHome
    is_gone: bool  # whether its box is gone: given back, or forgotten here
    results: str
    """home, partly, none, box, moved (from where they were put), lost (with the box), overwritten
    (on the box), away (pulled by another machine, or to a place unknown here), unasked (no box told
    yet whether there are any)."""
    log: str  # home, partly, box, moved, lost

    @property
    def seconds(self) -> int | None:
        """How long it ran, as far as is known here."""
        return self.kept.run.seconds(self.kept.box_time)

    @property
    def dollars(self) -> float | None:
        return spent(self.seconds, self.kept.price)

    @property
    def known_results(self) -> KnownResults:
        kept = self.kept
        files, count = (kept.result_files, kept.result_bytes) if kept.came else (None, None)
        return KnownResults(self.results, files, count, kept.result_place or None)

    @property
    def known_log(self) -> KnownLog:
        kept = self.kept
        came = kept.log_bytes if kept.place else None
        return KnownLog(self.log, came, kept.dropped, kept.place or None)


def list_runs(place: Path, host: str | None, *, every: bool) -> list[ListedRun]:
    """Return the runs of the repository around `place`, or with `every` of all, the newest first.
    Raises UsageError outside of a repository."""
    live, ended = all_boxes(), ended_boxes()
    key, _ = current(place)  # first: what came home is looked for where the repository is now
    found = [*_merged([*live, *ended]).values()]
    if not every:
        if not key:
            raise UsageError(
                "this is not a git repository, so it is unknown whose runs are meant.",
                where=str(place),
                hint="Run from your project, or see the runs of all: boxstrap runs --all",
            )
        found = kept_of_repository(found, key, [*live, *ended])
    if host is not None:
        found = [one for one in found if host in (one.box, one.host)]
    there = {(box.name, box.created) for box in live}
    listed = (_listed(one, (one.box, one.created) not in there) for one in found)
    return sorted(listed, key=lambda one: order(one.kept), reverse=True)


def known_on(*boxes: KnownBox) -> list[RunAtHome]:
    """Return every run that is known of these boxes, the newest first."""
    met = {(box.name, box.created) for box in boxes}
    found = (one for one in _merged(boxes).values() if (one.box, one.created) in met)
    return sorted(found, key=order, reverse=True)


def box_of_runs(place: Path, names: Sequence[str]) -> str:
    """Return the only box there that is known to have these runs of the repository around `place`;
    "" if several have one of them, or none has all."""
    boxes = all_boxes()
    found = kept_of_repository(known_on(*boxes), current(place)[0], boxes)
    having = [{one.box for one in found if _is_named(one, [name])} for name in names]
    box, *others = having[0] or {""}
    return box if not others and having == having[:1] * len(having) else ""


def is_box_of_runs(name: str, runs: Sequence[str]) -> bool:
    """Whether a box is called so, there or given back, or was until it was forgotten here: then
    one of these runs of it came home."""
    boxes = (*all_boxes(), *ended_boxes())
    return any(name in (box.name, box.host_key_alias) for box in boxes) or any(
        one.box == name and one.run.name in runs for one in all_kept()
    )


def known_of_host(host: str) -> list[RunAtHome]:
    """Return every run that is known of a box, by its name or host: there, forgotten or given back.
    The newest first; of the boxes that had that name, the newest."""
    all_ = _merged([*all_boxes(), *ended_boxes()]).values()
    found = [one for one in all_ if host in (one.box, one.host)]
    met = max((one.created for one in found), default=0.0)
    return sorted((one for one in found if one.created == met), key=order, reverse=True)


def _merged(boxes: Sequence[KnownBox]) -> dict[str, RunAtHome]:
    """Return what is here of each run, and the state that its box told last."""
    found = {one.id: one for one in all_kept()}
    for box in boxes:
        for seen in seen_on(box):
            kept = found.get(seen.id)
            if kept is None:
                found[seen.id] = seen
            elif kept.run.goes_on or not kept.seen:
                found[seen.id] = replace(
                    kept,
                    run=seen.run,
                    metric=kept.metric if seen.seen <= kept.seen else seen.metric,
                    seen=seen.seen,
                    box_time=seen.box_time,
                    results_there=seen.results_there,
                )
            elif seen.results_there:
                found[seen.id] = replace(kept, results_there=seen.results_there)
    return found


def _listed(kept: RunAtHome, is_gone: bool) -> ListedRun:
    away = "lost" if is_gone else "box"
    run, has_log = kept.run, kept.is_here() if kept.place else None
    has_all = not run.goes_on and run.log_bytes <= kept.log_end
    there = _THERE.get(kept.results_there, away) if kept.results_there else "unasked"
    results = kept.came or there
    # What came to a full disk has no manifest.
    mark = {"home": MANIFEST, "partly": ""}.get(results)
    if mark is not None and not Path(kept.result_place, mark).exists():
        results = "moved"
    here = "home" if has_all else "partly"
    log = away if has_log is None else here if has_log else "moved"
    return ListedRun(kept, is_gone, results, log)


_THERE = {"none": "none", "home": "away", "lost": "overwritten"}
"""What a box told of results that were not pulled to here."""
_RESULTS = {
    "home": "results at home",
    "partly": "results partly at home",
    "none": "no results",
    "box": "results on the box",
    "unasked": "results, if any, on the box",
    "moved": "results moved or removed here",
    "lost": "results went with the box",
    "overwritten": "results overwritten on the box",
    "away": "results pulled elsewhere",
}
_UNASKED = "results, if any, went with the box"
_LOG = {
    "home": "log at home",
    "partly": "log partly at home",
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
        name = (f"{names[kept.repository]}/" if every else "") + called(run.name)
        commit = run.commit[:12] + (f"+{run.snapshot[:7]}" if run.with_changes else "")
        gone = " (gone)" if one.is_gone else ""
        is_unknown = one.is_gone and one.results == "unasked"
        where = f"{_UNASKED if is_unknown else _RESULTS[one.results]}, {_LOG[one.log]}"
        if one.is_gone and is_forgotten(kept.box, kept.created):  # it may be there still
            gone, where = " (forgotten)", where.replace("went with", "left on")
        when, outcome = _when(kept, now), _outcome(kept, now)
        about = (commit, kept.metric[:60], where, cut(run.typed, WIDEST_COMMAND))
        rows.append((name, f"{kept.box}{gone}", when, outcome, *about))
    lines = [line for row in laid_out(rows, width, _FIRST) for line in row]
    if len(listed) > _SHOWN:
        lines.append(f"and {len(listed) - _SHOWN} older ones: --json has all")
    return lines


def _when(kept: RunAtHome, now: float) -> str:
    return f"{duration(max(0.0, kept.now(now) - (kept.run.begun or kept.run.started)))} ago"


def _outcome(kept: RunAtHome, now: float) -> str:
    run = kept.run
    took = run.seconds(kept.box_time)
    if run.goes_on:
        return f"{run.outcome().partition(':')[0]}, {age(kept, now)}"
    ran = f", ran {took_in_words(took, kept.price)}" if took is not None else ""
    return f"{run.outcome()}{ran}"


_MOST_NAMED = 20


def age(kept: RunAtHome, now: float) -> str:
    return f"as of {duration(max(0.0, now - kept.seen))} ago"


def as_of(kept: RunAtHome) -> str:
    """Say that it is shown from here, and how old that is."""
    seen = time.strftime("%Y-%m-%d %H:%M", time.localtime(kept.seen))
    return f"{called(kept.run.name)} of {kept.box}: from home, as of {seen}"


def box_or_home(
    options: BoxOptions,
    screen: Screen,
    names: Sequence[str],
    *,
    every: bool = False,
    with_details: bool = False,
) -> BoxLogin | list[RunAtHome]:
    """Connect to the box that has these runs (none: its newest), or return the runs from home.

    That is done if the box was given back, can't be reached, or lacks the run. Raises as
    `connect` and `BoxLogin.runs`, if they are not at home either.
    """
    if gone := find_gone(options, names):
        return gone
    try:
        with contextlib.ExitStack() as until_found:
            box = BoxLogin.open(options, screen, with_details=with_details)
            until_found.enter_context(box)
            asked: list[str | None] = [*names]
            for name in asked or [None]:
                box.runs(name, every=every)
            until_found.pop_all()
            return box
    except (UnreachableError, UsageError) as error:
        return kept_instead(options, names, error, screen)


def find_gone(options: BoxOptions, names: Sequence[str] | None = None) -> list[RunAtHome]:
    """Return the runs that are meant of a box that was given back (the newest, if `names` is not
    given); none if no such box is. Raises UsageError if there is one, and lacks them here."""
    host = options.host
    if host is None or box_by_name(host) or host not in {box.name for box in ended_boxes()}:
        return []
    found = _meant(options, [one for one in all_kept() if one.place], names)
    chosen = _chosen(found, names or ())
    if len(chosen) < max(1, len(names or ())):
        listed = "".join(f"\n  --run {one.run.name}" for one in found[:_MOST_NAMED])
        what = f"of its runs came home:{listed}" if found else "no run that is meant came home"
        raise UsageError(
            f"it was given back, and {what}", where=host, hint="See all: boxstrap runs --all"
        )
    return chosen


def kept_instead(
    options: BoxOptions, names: Sequence[str], error: BoxstrapError, screen: Screen
) -> list[RunAtHome]:
    """Return the runs that are meant and are here, since their box could not be asked.

    If that is because the run is on no box, only runs of boxes that are gone count. Raises
    `error` if there are none.
    """
    if isinstance(error, WhichBoxError) and error.has_several:
        here = _meant(options, known_on(*all_boxes()))
        if not names or any(_is_named(one, names) for one in here):
            raise error
    is_unreachable = isinstance(error, UnreachableError)
    known = {(box.name, box.created) for box in all_boxes()}
    kept = (one for one in all_kept() if is_unreachable or (one.box, one.created) not in known)
    found = _meant(options, [one for one in kept if one.place], names)
    chosen = _chosen(found, names)
    if len(chosen) < max(1, len(names)):
        raise error
    boxes = {one.box for one in found if not names or _is_named(one, names)}
    if options.host is None and len(boxes) > 1:
        listed = "".join(f"\n  --host {box}" for box in sorted(boxes))
        what = f"which box? Runs that are meant came home from {len(boxes)}:{listed}"
        raise UsageError(what, hint="Name one of them; boxstrap runs lists them.") from None
    if is_unreachable:
        newest = next((one for one in _known(options) if one.run.has_begun), chosen[0])
        if not names and newest.id != chosen[0].id:
            older, there = chosen[0].run.name, f"{newest.run.name} is the newest run known"
            error.hint += (
                f"\n{there}, and is not at home; an older one: --run {chosen[0].box}/{older}"
            )
            raise error
        screen.warn(error.text())
    return chosen


def over_at_home(
    options: BoxOptions, name: str | None, error: BoxstrapError, screen: Screen
) -> ListedRun:
    """Return the run of that name, which is over and came home from a box that is gone, or can't be
    reached. Raises `error` if there is none."""
    found = kept_instead(options, [name], error, screen) if name else []
    if not found or found[0].run.goes_on:
        raise error
    return _listed(found[0], is_gone=True)


def _known(options: BoxOptions) -> list[RunAtHome]:
    """Return the runs that may be meant, wherever they are, the newest first."""
    found = _merged([*all_boxes(), *ended_boxes()]).values()
    return _meant(options, sorted(found, key=order, reverse=True), [])


def _meant(
    options: BoxOptions, found: Iterable[RunAtHome], names: Sequence[str] | None = None
) -> list[RunAtHome]:
    """Return those of this repository; with a host all of that box, this repository's first, but
    where `names` is empty: then none of another repository is meant."""
    every = [one for one in found if options.host in (None, one.box, one.host)]
    own = kept_of_repository(every, options.repository[0], [*all_boxes(), *ended_boxes()])
    if options.host is None or (names is not None and not names and options.repository[0]):
        return own
    return own + [one for one in every if one not in own]


def _chosen(found: Sequence[RunAtHome], names: Sequence[str]) -> list[RunAtHome]:
    """Return the newest run of each name, or the newest of all."""
    if not names:
        return [*found[:1]]
    each = (next((one for one in found if _is_named(one, [name])), None) for name in names)
    return [one for one in each if one]


def _is_named(one: RunAtHome, names: Sequence[str]) -> bool:
    short = next(iter(repository_names([one.repository]).values()))
    every = (one.run.name, f"{short}/{one.run.name}", f"{one.repository}/{one.run.name}")
    return any(name in every for name in names)


_NEWEST = 20  # runs that are looked at
_FIGURE = r"(?:([a-z]+[0-9]*) )?([0-9]+(?:\.[0-9]+)?)"
_KINDS = ("bf16", "fp16", "half", "tf32", "fp32")
"""Kinds of numbers by which a training's speed is compared, the likeliest first."""


@dataclass(frozen=True)
class MeasuredRun:
    """One run that ended well, with what was measured of it."""

    name: str
    gpu: str
    gpus: int
    seconds: float
    peak_gb: float | None  # the most memory that one of its GPUs had in use, by NVML
    speeds: dict[str, float] = field(default_factory=dict)
    """TFLOP/s that the smoke test reached on its GPU, by kind of number; empty if not tested."""

    def line(self) -> str:
        peak = f", {self.peak_gb:.1f} GB at the peak" if self.peak_gb else ""
        return f"{self.name} took {duration(self.seconds)} on {self.gpus} x {self.gpu}{peak}"


@dataclass(frozen=True)
class SameRun:
    """What a run would take on another GPU, or why that can't be said."""

    seconds: float | None = None
    why_not: str = ""


def measured(kept: Iterable[RunAtHome]) -> list[MeasuredRun]:
    """Return the newest runs that ended with 0 and whose GPUs are known."""
    found = []
    for one in [run for run in kept if run.run.state == "finished" and run.run.rc == 0][:_NEWEST]:
        history, seconds = one.history(), one.run.seconds(one.box_time)
        if history is not None and seconds and (made := _of(one.run.name, history, seconds)):
            found.append(made)
    return found


def _of(name: str, history: RunHistory, seconds: float) -> MeasuredRun | None:
    from bootstrap.boxes.verdict import read_verdict

    head, rows = history.read_samples()
    used = [gpu[1] for row in rows for gpu in row[3] if gpu and gpu[1]]
    names = [gpu.name for gpu in head.gpus if gpu.name]
    speeds = dict[str, float]()
    if history.verdict:
        try:
            verdict = read_verdict(history.verdict.encode())
        except BoxstrapError:
            verdict = None
        if verdict is not None:
            names = names or [gpu.name for gpu in verdict.gpus if gpu.name]
            speeds = speeds_in([row.read for row in verdict.checks if row.check == "smoke-speed"])
    if not names:
        return None
    peak = max(used) / 1e9 if used else None
    return MeasuredRun(name, names[0], len(names), seconds, peak, speeds)


def speeds_in(texts: Sequence[str]) -> dict[str, float]:
    """Read `fp32 49.1, bf16 712 TFLOP/s`; of several GPUs the slowest counts."""
    found = dict[str, float]()
    for text in texts:
        if "TFLOP/s" not in text:
            continue
        for kind, figure in re.findall(_FIGURE, text.partition("TFLOP/s")[0]):
            if kind in _KINDS:
                found[kind] = min(float(figure), found.get(kind, float(figure)))
    return found


def same_run(run: MeasuredRun, price: Price, others: Sequence[MeasuredRun]) -> SameRun:
    """Return what the run would take on the price's GPU, by the measured speeds of both. It says
    nothing where the memory would not do, or one of the two was never measured here."""
    if run.peak_gb and run.peak_gb * 1e9 > price.shown_bytes:
        return SameRun(why_not=f"it used {run.peak_gb:.1f} GB")
    if price.is_a(run.gpu):
        return SameRun(run.seconds)
    known = next((one for one in others if one.speeds and price.is_a(one.gpu)), None)
    if not run.speeds or known is None:
        missing = run.gpu if not run.speeds else price.gpu
        return SameRun(why_not=f"the smoke test never measured a {missing} here")
    kind = next((kind for kind in _KINDS if kind in run.speeds and kind in known.speeds), "")
    if not kind:
        return SameRun(why_not="the two were measured with different numbers")
    return SameRun(run.seconds * run.speeds[kind] / known.speeds[kind])
