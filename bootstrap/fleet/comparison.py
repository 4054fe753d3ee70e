"""Runs side by side, or a sweep's cells: one page, a table as CSV, and JSON lines. Boxes that have
the runs are asked, each once; what came home counts where a box is gone or can't be reached."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from markupsafe import Markup

from bootstrap.boxes.at_home import PullPlace, RunAtHome
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.run import Run, cell_words
from bootstrap.boxes.run_history import MetricCurve, ask_history
from bootstrap.boxes.secrets import redactor_of_all
from bootstrap.errors import UsageError
from bootstrap.fleet.fan_out import fan_out
from bootstrap.link.record import all_boxes, ended_boxes
from bootstrap.link.registry import box_by_name
from bootstrap.link.target import BoxOptions
from bootstrap.paths import refuse_to_leave, write_private
from bootstrap.repo.place import repository_root
from bootstrap.runs.known_runs import list_runs
from bootstrap.runs.page import fill, named_page
from bootstrap.runs.report import metric_is_less
from bootstrap.sizes import dollars, duration, spent
from bootstrap.ui.layout import aligned
from bootstrap.ui.plots import Plot, PlotLine, parallel_coordinates
from bootstrap.ui.screen import Reporter, Screen
from bootstrap.value import Document, document

TEMPLATE = "comparison.html.j2"
MOST_LINES = 40  # curves of one metric that are drawn over each other
_MOST_NAMED = 20


@dataclass(frozen=True)
class ComparedRun(Document):
    """One of several runs, or what became of a sweep's cell: its last run, and its metrics."""

    KEYS = (
        "cell=key or None, command, parameters, box or None, run=run.name, commit=run.commit, "
        "with_changes=run.with_changes, state, seconds, dollars, metrics"
    )

    key: str  # of a cell its digest; "" of a run that was named
    command: str
    parameters: Mapping[str, str]
    box: str = ""
    run: Run | None = None
    seconds: int | None = None
    dollars: float | None = None
    curves: Sequence[MetricCurve] = ()
    title: str = ""  # how a run is called among the others; a cell is called by what it was given

    @property
    def state(self) -> str:
        return self.run.outcome() if self.run else "not queued"

    @property
    def words(self) -> str:
        return self.title or cell_words(self.parameters) or self.command

    @cached_property
    def metrics(self) -> dict[str, float]:
        return {curve.name: curve.end[1] for curve in self.curves if curve.end}

    def best(self, metric: str, *, least: bool) -> BestValue | None:
        """Return the least, or the largest, value of a metric; None if it has none."""
        for curve in self.curves:
            if curve.name == metric and (found := curve.best(least=least)):
                return BestValue(self, curve, *found)
        return None


@dataclass(frozen=True)
class BestValue(Document):
    """The best value that a run ever logged of a metric: whose, where and which."""

    KEYS = (
        "value, at, axis=curve.axis, box=of.box or None, run=of.run.name, "
        "seconds=of.seconds, dollars=of.dollars"
    )

    of: ComparedRun
    curve: MetricCurve
    at: float
    value: float

    @property
    def words(self) -> str:
        """The value and its place, as in `0.38 at step 400`."""
        return f"{_number(self.value)} {self.curve.place(self.at)}"


@dataclass(frozen=True)
class Comparison:
    """The runs in their order, and the metric by which they are compared."""

    name: str
    results: Sequence[ComparedRun]
    metric: str
    least: bool
    noun: str = "cell"

    @property
    def _successes_first(self) -> list[ComparedRun]:
        """They are named where another run is as good."""
        return sorted(self.results, key=lambda one: one.run is None or one.run.rc != 0)

    @property
    def ranked(self) -> list[ComparedRun]:
        """Those that have the metric, the best at its end first."""
        found = [
            one
            for one in self._successes_first
            if math.isfinite(one.metrics.get(self.metric, math.nan))
        ]
        return sorted(found, key=lambda one: one.metrics[self.metric], reverse=not self.least)

    @property
    def best_value(self) -> BestValue | None:
        every = [one.best(self.metric, least=self.least) for one in self._successes_first]
        choose = min if self.least else max
        return choose((one for one in every if one), key=lambda one: one.value, default=None)

    @property
    def extreme(self) -> str:
        return "least" if self.least else "most"

    @property
    def names(self) -> list[str]:
        """The parameters, in the order of their first use."""
        return [*dict.fromkeys(name for one in self.results for name in one.parameters)]

    @property
    def metric_names(self) -> list[str]:
        every = dict.fromkeys(name for one in self.results for name in one.metrics)
        return [*dict.fromkeys([self.metric] if self.metric in every else []) | every]

    @property
    def total(self) -> float:
        return sum(one.dollars or 0.0 for one in self.results)


def compare_by(
    metric: str | None, results: Sequence[ComparedRun], usual: str = "", *, least: bool = True
) -> tuple[str, bool]:
    """Choose the metric, and whether less is better: the one that was asked for, the usual one (of
    which `least` is known), the first loss, or the first.

    Raises UsageError if no run has the one that was asked for.
    """
    every = [*dict.fromkeys(name for one in results for name in one.metrics)]
    if metric is not None and metric not in every:
        there = f"; there are: {', '.join(every)}." if every else ": none was logged yet."
        raise UsageError(f"no run has a metric {metric!r}{there}", where="--metric")
    losses = [name for name in every if metric_is_less(name)]
    chosen = metric or (usual if usual in every else "") or next(iter(losses or every), "")
    return chosen, least if chosen == usual else metric_is_less(chosen)


def compare_runs(  # noqa: PLR0913, PLR0917 - as it was typed
    options: BoxOptions,
    screen: Screen,
    hosts: Sequence[str],
    names: Sequence[str],
    metric: str | None,
    out: str | None,
) -> None:
    """Write page, CSV and JSON lines of these runs: without names the newest of each box.

    A name is RUN or BOX/RUN. Without boxes it is looked up in what is known here of this
    repository's runs. Raises UsageError if a name fits none, or several.
    """
    given = named_page(out, "--out")
    wanted = {host: [*names] for host in hosts} or _boxes_of(options, names)
    there = [box for box in wanted if hosts or box_by_name(box)]
    outcomes = fan_out(there, lambda box: _ask(options, box, wanted[box]))
    forgotten = (_at_home(options, box, wanted[box]) for box in wanted if box not in there)
    found: list[ComparedRun] = [*chain(*forgotten)]
    for outcome in outcomes:
        if outcome.error:
            screen.warn(f"{outcome.host} was not asked: {outcome.error.what}")
            found += _at_home(options, outcome.host, wanted[outcome.host])
        found += outcome.value or ()
    for name in names:
        if not any(_is_called(one.run, one.box, name) for one in found if one.run):
            raise UsageError(
                f"there is no run {name}, neither there nor at home.",
                where="--run",
                hint="Those that are known here: boxstrap runs",
            )
    if not found:
        raise UsageError("there is no run to compare.", hint="Those that are known: boxstrap runs")
    found.sort(key=lambda one: _place_of(names, one))
    several = Counter(one.run.name for one in found if one.run)
    results = [
        replace(
            one, title=f"{one.box}/{one.run.name}" if several[one.run.name] > 1 else one.run.name
        )
        for one in found
        if one.run
    ]
    chosen, least = compare_by(metric, results)
    title = ", ".join(one.title for one in results[:3])
    title += f" and {len(results) - 3} more" if len(results) > 3 else ""
    report = Comparison(title, results, chosen, least, "run")
    file = re.sub(r"[^\w.-]+", "-", "+".join(one.title for one in results)).lstrip(".")[:80]
    page = given or usual_place(options, "compared", file)
    screen.result(*write_comparison(options, report, page))


def _place_of(names: Sequence[str], one: ComparedRun) -> int:
    places = (at for at, name in enumerate(names) if one.run and _is_called(one.run, one.box, name))
    return next(places, len(names))


def _boxes_of(options: BoxOptions, names: Sequence[str]) -> dict[str, list[str]]:
    """Return which boxes have these runs of this repository, by what is known here."""
    listed = [one.kept for one in list_runs(options.place, None, every=False)]
    wanted: dict[str, list[str]] = {}
    for name in names:
        boxes = [*dict.fromkeys(one.box for one in listed if _is_called(one.run, one.box, name))]
        if not boxes:
            raise UsageError(
                f"no run {name} of this repository is known here.",
                where="--run",
                hint="Those that are: boxstrap runs. Those of a box: --host BOX",
            )
        if len(boxes) > 1:
            each = "".join(f"\n  --run {box}/{name}" for box in boxes[:_MOST_NAMED])
            raise UsageError(f"which {name}? Several boxes have one:{each}", where="--run")
        wanted.setdefault(boxes[0], []).append(name)
    return wanted


def _is_called(run: Run, box: str, name: str) -> bool:
    return name in (run.name, f"{box}/{run.name}")


def _ask(options: BoxOptions, host: str, names: Sequence[str]) -> list[ComparedRun]:
    """Return this repository's runs of these names on a box; without names its newest."""
    if host in {box.name for box in ended_boxes()} - {box.name for box in all_boxes()}:
        raise UsageError("it was given back.", where=host)
    with BoxLogin.open(replace(options, host=host), Reporter()) as box:
        own = [run for run in box.state.runs if run.repo_key == box.own]
        meant = own[:1]
        if names:
            newest = (next((run for run in own if _is_called(run, box.name, name)), None)
                      for name in names)  # fmt: skip
            meant = [run for run in newest if run]
        return [run_there(box, run) for run in dict.fromkeys(meant)]


def _at_home(options: BoxOptions, host: str, names: Sequence[str]) -> list[ComparedRun]:
    """Return what is here of these runs of a box, or of its newest one."""
    listed = [one.kept for one in list_runs(options.place, host, every=False)]
    chosen = [*dict.fromkeys(
        next((one for one in listed if _is_called(one.run, one.box, name)), None) for name in names
    )] if names else listed[:1]  # fmt: skip
    return [run_at_home(one) for one in chosen if one]


def run_there(box: BoxLogin, run: Run) -> ComparedRun:
    curves = ask_history(box, run).curves if run.begun else ()
    return _compared(box.name, run, curves, box.state.time, box.known.price)


def run_at_home(one: RunAtHome) -> ComparedRun:
    """Return what is here of a run: its curves if it came home, or what its box told last."""
    prices = {box.name: box.price for box in (*ended_boxes(), *all_boxes())}
    history = one.history() if one.place else None
    curves = history.curves if history else ()
    return _compared(one.box, one.run, curves, one.box_time, prices.get(one.box, 0.0))


def _compared(
    box: str, run: Run, curves: Sequence[MetricCurve], now: int, price: float
) -> ComparedRun:
    """Return a run as it is compared; `now` is on its box's clock, `price` in dollars an hour."""
    seconds = run.seconds(now)
    cost = spent(seconds, price)
    return ComparedRun("", run.typed, {}, box, run, seconds, cost, tuple(curves))


def usual_place(options: BoxOptions, folder: str, name: str) -> Path:
    root = repository_root(options.place) or options.place
    place = PullPlace(root.absolute(), ("boxstrap-results", folder))
    return place.make() / f"{name}.html"


def write_comparison(
    options: BoxOptions, report: Comparison, page: Path
) -> tuple[dict[str, object], str]:
    """Write page, CSV and JSON lines; return the document and the text of it. Raises UsageError."""
    redact = redactor_of_all(options).text
    csv_file, lines_file = page.with_suffix(".csv"), page.with_suffix(".jsonl")
    files = {
        page: comparison_page(report, redact),
        csv_file: redact(as_csv(report)),
        lines_file: redact(as_lines(report)),
    }
    for file, content in files.items():
        try:
            refuse_to_leave(file)
            write_private(file, content)
        except OSError as error:
            raise UsageError(f"{file} can't be written: {error.strerror}", where="--out") from error
    best, value = report.ranked[:1], report.best_value
    data: dict[str, object] = {
        "report": str(page),
        "csv": str(csv_file),
        "lines": str(lines_file),
        "metric": report.metric or None,
        "best": best[0] if best else None,
        "best_value": value,
        f"{report.noun}s": report.results,
    }
    summary = _summary(report)
    table = [*aligned(_rows(report)), *(["", *summary] if summary else [])]
    return data, "\n".join([*table, "", f"report: {page}"])


def _rows(report: Comparison) -> list[tuple[str, ...]]:
    """Return the table, the best first, then those without the metric."""
    ranked = report.ranked
    rest = [one for one in report.results if one not in ranked]
    metrics = report.metric_names
    given = ["run"] if report.noun == "run" else report.names or ["command"]
    extreme = [f"{report.extreme} {report.metric}"] if metrics else []
    ends = ["state", "time", "cost", "box"]
    ends += ["commit", "command"] if report.noun == "run" else ["run"]
    rows = [(*given, *metrics, *extreme, *ends)]
    for one in [*ranked, *rest]:
        value = one.best(report.metric, least=report.least)
        run, commit = (one.run.name, one.run.short_commit) if one.run else ("", "")
        first = {"command": one.command, "run": one.title, **one.parameters}
        rows.append(
            (*(first.get(name, "") for name in given),
             *(_number(one.metrics.get(name)) for name in metrics),
             *([value.words if value else ""] if metrics else []),
             one.state,
             duration(one.seconds) if one.seconds is not None else "",
             dollars(one.dollars) if one.dollars else "",
             one.box,
             *([commit, one.command] if report.noun == "run" else [run]))
        )  # fmt: skip
    return rows


def _summary(report: Comparison) -> list[str]:
    """Say which is the best, and which value."""
    best, value = report.ranked[:1], report.best_value
    lines = []
    if best:
        end = _number(best[0].metrics[report.metric])
        lines.append(
            f"best by {report.metric}, {report.extreme} at the end: {end} of {best[0].words}"
        )
    if value:
        one = value.of
        took = duration(one.seconds) if one.seconds is not None else ""
        which = ", ".join(filter(None, [took, dollars(one.dollars) if one.dollars else ""]))
        lines.append(f"{report.extreme} {report.metric} of all: {value.words} of {one.words}"
                     + (f" ({which})" if which else ""))  # fmt: skip
    if report.total:
        lines.append(f"all {report.noun}s: {dollars(report.total)}")
    return lines


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def as_csv(report: Comparison) -> str:
    """Return a row a run, in their order."""
    text = io.StringIO()
    names, metrics = report.names, report.metric_names
    rows = csv.writer(text)
    best = [f"{report.extreme} {report.metric}", f"{report.extreme} at"] if metrics else []
    ends = ["state", "seconds", "dollars", "box", "run", "commit"]
    rows.writerow(["cell", "command", *names, *metrics, *best, *ends])
    for one in report.results:
        value = one.best(report.metric, least=report.least)
        rows.writerow(
            [one.key, one.command, *(one.parameters.get(name, "") for name in names),
             *(one.metrics.get(name, "") for name in metrics),
             *(([value.value, value.at] if value else ["", ""]) if metrics else []),
             one.state, one.seconds, one.dollars, one.box,
             *([one.run.name, one.run.short_commit] if one.run else ["", ""])]
        )  # fmt: skip
    return text.getvalue()


def as_lines(report: Comparison) -> str:
    """Return a JSON object a run, in their order."""
    return "".join(f"{json.dumps({'v': 1, **document(one)})}\n" for one in report.results)


def comparison_page(report: Comparison, redact: Callable[[str], str]) -> str:
    """Return the page as HTML; deterministic."""
    plots = []
    for name in report.metric_names:
        with_it = [
            (one, curve)
            for one in report.ranked or report.results
            for curve in one.curves
            if curve.name == name and len(curve.points) > 1
        ]
        for axis in dict.fromkeys(curve.axis for _, curve in with_it):
            those = [(one, curve) for one, curve in with_it if curve.axis == axis]
            drawn = those[:MOST_LINES]
            left = len(those) - len(drawn)
            plot = Plot(
                redact(f"{name} by {'time' if axis == 'seconds' else axis}"),
                [PlotLine(redact(one.words), curve.points) for one, curve in drawn],
                in_seconds=axis == "seconds",
                note=f"The best {len(drawn)}; {left} more are not drawn." if left else "",
            )
            plots.append(plot)
    head, *rows = _rows(report)
    finished = sum(1 for one in report.results if one.run and one.state == "finished")
    return fill(
        TEMPLATE,
        redact,
        report=report,
        heading=f"{finished} of {len(report.results)} {report.noun}s finished",
        all_finished=finished == len(report.results),
        summary=[f"{line[:1].upper()}{line[1:]}" for line in _summary(report)],
        head=head,
        rows=rows,
        has_best=bool(report.ranked),
        plots=plots,
        parallel=_coordinates(report, redact) if report.names and report.ranked else "",
    )


def _coordinates(report: Comparison, redact: Callable[[str], str]) -> Markup:
    """Return the ranked cells over an axis for each parameter that varies, and the metric."""
    ranked = report.ranked
    columns: list[tuple[str, list[str]]] = [
        (name, [one.parameters.get(name, "") for one in ranked]) for name in report.names
    ]
    columns = [(redact(name), values) for name, values in columns if len({*values}) > 1]
    columns.append((redact(report.metric), [repr(one.metrics[report.metric]) for one in ranked]))
    return parallel_coordinates(columns, redact)
