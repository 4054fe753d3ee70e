"""`report`: a run as one HTML page, from what its box kept and what was pulled from it. Its
outcome, its metrics, the use of GPUs and machine, its setup."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path

from bootstrap import __version__
from bootstrap.boxes.at_home import PullPlace, RunAtHome, results_place
from bootstrap.boxes.disk import parse_low_disk
from bootstrap.boxes.failure import Failure, find_failures
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.run import Run, called, repository_names
from bootstrap.boxes.run_history import MetricCurve, RunHistory, SampleHead, SampleRow, ask_history
from bootstrap.boxes.secrets import redactor_of_all
from bootstrap.boxes.verdict import Verdict, read_verdict
from bootstrap.errors import BoxstrapError, NotSafeError, UsageError, write_error
from bootstrap.link.record import all_boxes, ended_boxes
from bootstrap.link.target import BoxOptions
from bootstrap.onbox.metrics import WORDS
from bootstrap.onbox.run_folder import END_BYTES
from bootstrap.paths import write_private
from bootstrap.providers.estimate import spending
from bootstrap.runs.known_runs import as_of, box_or_home
from bootstrap.runs.page import fill, named_page, verdict_end, write_page
from bootstrap.sanitize import one_line
from bootstrap.sizes import duration, grouped_number, size
from bootstrap.steps.plan import NAMES
from bootstrap.transfer.destination import MANIFEST, why_refused
from bootstrap.transfer.manifest import MOST_MANIFEST, Manifest, read_manifest
from bootstrap.ui.plots import Plot, PlotLine
from bootstrap.ui.screen import Screen
from bootstrap.ui.steps import Steps

NAME = "boxstrap-report.html"
_MOST_RESULTS = 1000


def make_report(options: BoxOptions, screen: Screen, name: str | None, out: str | None) -> None:
    """Write a run's page, by default next to its results. Raises UsageError, UnreachableError."""
    given = named_page(out, "--out")
    found = box_or_home(options, screen, [name] if name else [], with_details=True)
    if isinstance(found, list):
        _report_kept(options, screen, found[0], given)
        return
    with found as box:
        run = box.begun_run(name)
        history = ask_history(box, run)
        report = _report(box, run, history)
        if report.failure and report.failure.lines:
            box.warn_of_unredacted()
    file = given or _usual_place(box, run)
    _save(screen, run, report_page(report, box.redactor.text), file, is_given=bool(given))


def _report_kept(options: BoxOptions, screen: Screen, kept: RunAtHome, given: Path | None) -> None:
    screen.redact = redactor_of_all(options).text
    file = given or _made(PullPlace.again(Path(kept.place).parent)) / NAME
    history = kept.history()
    if history is None:
        raise UsageError(
            f"what a report of {kept.run.name} is made of did not come home from {kept.box}.",
            where=kept.place,
            hint=f"Its log: boxstrap logs --host {kept.box} --run {kept.run.name}",
        )
    screen.note("home", as_of(kept))
    page = report_page(report_at_home(kept, history), screen.redact)
    _save(screen, kept.run, page, file, is_given=bool(given))


def _save(screen: Screen, run: Run, page: str, file: Path, *, is_given: bool) -> None:
    try:
        if is_given:
            write_page(file, page, "--out")
        else:
            write_private(file, page)
    except OSError as error:
        raise write_error(file, error) from error
    text = f"{called(run.name)} {run.outcome()}\nreport: {file}"
    screen.result({"report": str(file), "run": run}, text)


def _report(box: BoxLogin, run: Run, history: RunHistory) -> RunReport:
    failures = find_failures([run], box.details.log_ends, box.redactor.text)
    return RunReport(
        box=box.name,
        repository=box.repository(run),
        run=run,
        now=box.state.time,
        history=history,
        verdict=_verdict(history),
        failure=failures.get(run),
        results=_results(_place(box, run), history),
        price=box.known.price,
        estimated_hours=(box.known.of_lease("seconds") or 0.0) / 3600,
    )


def report_at_home(
    kept: RunAtHome, history: RunHistory, brought: Manifest | None = None
) -> RunReport:
    """`brought`: what a pull has just brought of it; else the manifest is read."""
    failures = find_failures([kept.run], {kept.run.path: kept.log_tail(END_BYTES)}, str)
    known = {(box.name, box.created): box for box in [*ended_boxes(), *all_boxes()]}
    box = known.get((kept.box, kept.created))
    return RunReport(
        box=kept.box,
        repository=next(iter(repository_names([kept.run.repo_key]).values())),
        run=kept.run,
        now=kept.box_time,
        history=history,
        verdict=_verdict(history),
        failure=failures.get(kept.run),
        results=_reported(brought)
        if brought and brought.files
        else _results(PullPlace.again(Path(kept.place).parent), history),
        price=box.price if box else 0.0,
        estimated_hours=((box and box.of_lease("seconds")) or 0.0) / 3600,
    )


def _verdict(history: RunHistory) -> Verdict | None:
    try:
        return read_verdict(history.verdict.encode()) if history.verdict.strip() else None
    except BoxstrapError:
        return None


def _results(here: PullPlace, history: RunHistory) -> list[ReportedFile]:
    """Return the files that were pulled, from the manifest; else those on the box."""
    return read_results(here) or [ReportedFile(path, count) for path, count in history.results]


def read_results(place: PullPlace) -> list[ReportedFile]:
    """Return the files of a folder's manifest; none if it is missing or invalid."""
    try:
        with place.open(MANIFEST) as opened:
            files = read_manifest(opened.read(MOST_MANIFEST + 1)).files
    except (OSError, ValueError):
        return []
    rows = islice(files.values(), _MOST_RESULTS)
    return [ReportedFile(one_line(row.path), row.size, row.sha256) for row in rows]


def _reported(brought: Manifest) -> list[ReportedFile]:
    rows = sorted(brought.files.items())[:_MOST_RESULTS]
    return [ReportedFile(one_line(path), one.home.size, one.sha256) for path, one in rows]


def _usual_place(box: BoxLogin, run: Run) -> Path:
    """Return a file in the pull's folder (created here, never sent). Raises NotSafeError."""
    if why := why_refused(run.path):  # a box may call a run `..`
        raise NotSafeError(f"the box's run {run.path} {why}.", hint="Name a file: --out FILE")
    return _made(_place(box, run)) / NAME


def _place(box: BoxLogin, run: Run) -> PullPlace:
    return results_place(box.known, run, box.own, box.options.place)


def _made(place: PullPlace) -> Path:
    """Return the folder, created if missing. Raises NotSafeError if it leads elsewhere."""
    try:
        return place.make()
    except OSError as error:
        raise write_error(place.path, error) from error


MOST_PLOTS = 12
MOST_LINES = 8
_GIB = 2**30
_FAMILY = re.compile(WORDS)
_OF_GPU = (
    ("GPU load", 0, " %", 1.0),
    ("GPU memory", 1, " GiB", float(_GIB)),
    ("GPU power", 2, " W", 1.0),
    ("GPU temperature", 3, " °C", 1.0),
)
"""Title, index in a sample's row, unit, and the divisor to that unit."""


def metric_plots(
    curves: Sequence[MetricCurve], redact: Callable[[str], str] = str
) -> tuple[list[Plot], int]:
    """Plot metrics of one kind together, losses first; also return how many curves are left out."""
    families: dict[tuple[str, str], list[MetricCurve]] = {}
    for curve in curves:
        if len(curve.points) > 1:
            found = _FAMILY.search(curve.name)
            families.setdefault((found[0] if found else curve.name, curve.axis), []).append(curve)
    chosen = sorted(families.items(), key=lambda family: family[0][0] != "loss")[:MOST_PLOTS]
    plots = [_metric_plot(few[:MOST_LINES], redact) for _, few in chosen]
    drawn = sum(len(plot.lines) for plot in plots)
    return plots, sum(len(few) for few in families.values()) - drawn


def metric_numbers(curves: Sequence[MetricCurve]) -> list[tuple[str, str]]:
    """Return the metrics that are no curve, since they were logged once: name and number."""
    found = []
    for curve in curves:
        if len(curve.points) < 2:
            end = curve.end
            words = f"{end[1]:.6g} {curve.place(end[0])}" if end else "never a number"
            found.append((curve.name, f"{words}{_odd(curve)}"))
    return found


def _metric_plot(curves: Sequence[MetricCurve], redact: Callable[[str], str]) -> Plot:
    axis, names = curves[0].axis, [redact(curve.name) for curve in curves]
    notes = [_about(name, curve) for name, curve in zip(names, curves, strict=True)]
    if axis == "seconds":
        notes.append("By time, since not each of its lines has a step or epoch that rises.")
    return Plot(
        f"{', '.join(names)} by {'time' if axis == 'seconds' else axis}",
        [PlotLine(name, curve.points) for name, curve in zip(names, curves, strict=True)],
        in_seconds=axis == "seconds",
        note=" ".join(notes),
    )


def _about(name: str, curve: MetricCurve) -> str:
    """Describe what a curve's plot does not show."""
    end, least = curve.end, metric_is_less(name)
    best = None if _NO_GOAL.search(name) else curve.best(least=least)
    last = f" {end[1]:.4g} at the end" if end else " no number"
    if end and best and f"{best[1]:.4g}" != f"{end[1]:.4g}":
        last += f", {'least' if least else 'most'} {best[1]:.4g} {curve.place(best[0])}"
    means = ""
    if curve.count > len(curve.points) > 0:
        means = f", {grouped_number(curve.count)} values: each point stands for its neighbours"
    return f"{name}:{last}{means}{_odd(curve)}."


def _odd(curve: MetricCurve) -> str:
    return "" if curve.odd is None else f", and became nan or inf {curve.place(curve.odd)}"


_LESS = re.compile(r"loss|err|perplexity|ppl|nll|mae|mse|rmse|[wc]er\b|fid|bpb", re.IGNORECASE)
_NO_GOAL = re.compile(r"lr|learning_rate|norm", re.IGNORECASE)


def metric_is_less(name: str) -> bool:
    return bool(_LESS.search(name))


def machine_plots(head: SampleHead, rows: Sequence[SampleRow], run: Run) -> list[Plot]:
    """Plot the monitor's samples since the run started; no plots if there are none."""
    if not rows:
        return []
    seconds = _seconds(rows, run)
    gpus = gpus_of(head, run)
    shown = gpus[:MOST_LINES]
    tops = {
        "GPU load": 100.0,
        "GPU memory": _most((head.gpus[at].memory_total for at in gpus), _GIB),
        "GPU power": _most((head.gpus[at].power_limit for at in gpus), 1),
    }
    note = f"The first {MOST_LINES} of {len(gpus)}." if len(gpus) > MOST_LINES else ""
    plots = []
    for title, column, unit, one in _OF_GPU:
        lines = [
            PlotLine(f"GPU {head.gpus[at].index}", _gpu_points(rows, seconds, at, column, one))
            for at in shown
        ]
        if any(line.points for line in lines):
            plots.append(Plot(title, lines, True, tops.get(title), note, unit, is_half=True))
    cpu = [(x, row[1]) for x, row in zip(seconds, rows, strict=True) if row[1] is not None]
    memory = [
        (x, row[2] / _GIB) for x, row in zip(seconds, rows, strict=True) if row[2] is not None
    ]
    cores = f"processor, all of {head.cpus} cores" if head.cpus else "processor"
    top = _most([head.memory_total], _GIB)
    return [
        *plots,
        Plot("Processor", [PlotLine(cores, cpu)], True, 100.0, unit=" %", is_half=True),
        Plot("Memory", [PlotLine("in use, by all", memory)], True, top, unit=" GiB", is_half=True),
    ]


def gpus_of(head: SampleHead, run: Run) -> list[int]:
    """Return the indexes of the run's GPUs; those of all GPUs if it may use all."""
    given = run.gpus.split(",") if run.gpus else []
    every = list(range(len(head.gpus)))
    return [at for at in every if str(head.gpus[at].index) in given] or every


def use_words(head: SampleHead, rows: Sequence[SampleRow], run: Run) -> str:
    """Describe the mean load and the highest memory use of its GPUs; "" without samples."""
    gpus = gpus_of(head, run)
    loads = [x for at in gpus for _, x in _gpu_points(rows, _seconds(rows, run), at, 0, 1.0)]
    held = [x for at in gpus for _, x in _gpu_points(rows, _seconds(rows, run), at, 1, _GIB)]
    if not loads or not held:
        return ""
    names = " and ".join(dict.fromkeys(head.gpus[at].name or "?" for at in gpus))
    total = _most((head.gpus[at].memory_total for at in gpus), _GIB)
    of = f" of {total:.1f}" if total else ""
    busy = f"{sum(loads) / len(loads):.0f} % busy on average"
    return f"{len(gpus)} {names}: {busy}; at most {max(held):.1f}{of} GiB of one in use"


def disk_words(history: RunHistory) -> str:
    """Say that its disk was about to be full; "" if it wasn't."""
    low = parse_low_disk(history.disk.encode("utf-8", "replace"))
    return f"At its end, {low.words()}" if low else ""


def _seconds(rows: Sequence[SampleRow], run: Run) -> list[float]:
    return [max(0.0, row[0] - (run.begun or run.started)) for row in rows]


def _gpu_points(
    rows: Sequence[SampleRow], seconds: Sequence[float], at: int, column: int, one: float
) -> list[tuple[float, float]]:
    """Return one value of one GPU over time, without the samples that lack it."""
    points = []
    for x, (*_, gpus) in zip(seconds, rows, strict=True):
        gpu = gpus[at] if at < len(gpus) else None
        value = gpu[column] if gpu else None
        if value is not None:
            points.append((x, value / one))
    return points


def _most(values: Iterable[float | None], one: float) -> float | None:
    return max((value / one for value in values if value and value > 0), default=None)


TEMPLATE = "report.html.j2"


@dataclass(frozen=True)
class ReportedFile:
    """A file of the results; `sha256` is "" if it was not pulled."""

    path: str
    bytes: int
    sha256: str = ""


@dataclass(frozen=True)
class RunReport:
    box: str
    repository: str
    run: Run
    now: int  # on the box's clock, like all times of a run
    history: RunHistory
    verdict: Verdict | None = None
    failure: Failure | None = None
    results: Sequence[ReportedFile] = ()
    price: float = 0.0  # dollars an hour of its box; 0 if unknown
    estimated_hours: float = 0.0  # what its box's lease allowed; 0 without one
    version: str = __version__


@dataclass(frozen=True)
class StepBar:
    """A step of the setup: start and length of its bar, in percent of the whole setup."""

    step: str
    state: str
    words: str
    took: str
    start: float
    width: float


def report_page(report: RunReport, redact: Callable[[str], str] = str) -> str:
    """Return the page as HTML; deterministic."""
    history, run = report.history, report.run
    head, rows = history.read_samples()
    metrics, left_out = metric_plots(history.curves, redact)
    return fill(
        TEMPLATE,
        redact,
        report=report,
        run=run,
        mood="return" if run.failed else "warn" if run.stopped else "keep",
        began=_began(run),
        took=_took(run, report.now),
        cost=_cost(report),
        metrics=metrics,
        numbers=metric_numbers(history.curves),
        left_out=left_out,
        log_words=_log_words(history),
        machine=machine_plots(head, rows, run),
        use=". ".join(filter(None, [use_words(head, rows, run), disk_words(history)])),
        steps=step_bars(history),
        changes=[[*line.split(" ", 2), "", ""][:3] for line in history.changes],
        verdict_end=verdict_end(report.verdict) if report.verdict else "",
        results=[(one.path, size(one.bytes), one.sha256) for one in report.results],
        total=size(sum(one.bytes for one in report.results)),
    )


def step_bars(history: RunHistory) -> list[StepBar]:
    """Return the steps of the setup before the run, in the order in which they started."""
    steps = Steps(lambda: 0.0)
    for event in history.read_events():
        steps.take(event)
    began = steps.setup.started or 0.0
    rows = [row for row in steps.rows.values() if row.step in NAMES]
    ends = [row.ended for row in [*rows, steps.setup] if row.ended is not None]
    whole = max([0.001, *(end - began for end in ends)])
    bars = []
    for row in sorted(rows, key=lambda row: row.started or began):
        start = max(0.0, (row.started or began) - began)
        seconds = row.seconds or 0.0
        bars.append(
            StepBar(
                row.step,
                row.state,
                next(iter(row.words()), ""),
                duration(seconds) if row.seconds is not None else "",
                start=round(min(100.0, 100 * start / whole), 2),
                width=round(min(100.0, 100 * seconds / whole), 2),
            )
        )
    return bars


def _began(run: Run) -> str:
    if run.state == "queued":
        return "not yet"
    if run.state == "finished" and not run.begun:
        return "never"
    began = run.begun or run.started
    utc = datetime.fromtimestamp(began, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"{utc if began else '?'}, on the box's clock"


def _cost(report: RunReport) -> str:
    """Return what the run cost, beside what was estimated for as long as the lease allowed."""
    seconds = report.run.seconds(report.now)
    if not report.price or seconds is None:
        return ""
    spent = spending(report.price, report.estimated_hours, seconds)
    return spent.line(is_over=not report.run.goes_on)


def _took(run: Run, now: int) -> str:
    seconds = run.seconds(now)
    if seconds is None:
        return ""
    return f"{duration(seconds)} so far" if run.state == "running" else duration(seconds)


def _log_words(history: RunHistory) -> str:
    if history.read >= history.of:
        return ""
    words = f"The log has {size(history.of)}; {size(history.read)} of it were read"
    return f"{words}, in evenly spaced pieces."
