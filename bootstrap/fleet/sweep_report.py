"""A sweep's results side by side: one page, a table as CSV, and JSON lines.

The boxes that have the cells are asked, each once; what came home counts where a box is gone or
can't be reached. Plots are SVG without scripts, as in a run's report.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

from markupsafe import Markup, escape

from bootstrap.boxes.at_home import PullPlace, RunAtHome, all_kept, seen_on
from bootstrap.boxes.login import BoxLogin, redactor_of_all
from bootstrap.errors import UsageError
from bootstrap.fleet.fan_out import fan_out
from bootstrap.fleet.sweep import Ledger, Sweep, ledger_file, load_ledger, read_sweep
from bootstrap.link.record import all_boxes, ended_boxes
from bootstrap.link.target import BoxOptions
from bootstrap.paths import expanded, write_private
from bootstrap.protocol.run import Run
from bootstrap.protocol.run_history import MetricCurve, ask_history
from bootstrap.repo.place import repository_root
from bootstrap.runs.report import Plot, PlotLine
from bootstrap.text.sizes import dollars, duration, spent
from bootstrap.ui.layout import aligned
from bootstrap.ui.page import check_place, fill
from bootstrap.ui.screen import Reporter, Screen

TEMPLATE = "sweep.html.j2"
MOST_LINES = 40
"""Curves of one metric that are drawn over each other."""
_LESS = re.compile(r"loss|err|perplexity|ppl|nll|mae|mse|rmse", re.IGNORECASE)
_WIDTH, _HEIGHT, _EDGE = 880, 320, 40


@dataclass(frozen=True)
class CellResult:
    """What became of a cell: its last run, and its metrics."""

    key: str
    command: str
    parameters: Mapping[str, str]
    box: str = ""
    run: Run | None = None
    seconds: int | None = None
    dollars: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The last value of each."""
    curves: Sequence[MetricCurve] = ()

    @property
    def state(self) -> str:
        """Its state in a few words."""
        return self.run.outcome() if self.run else "not queued"

    def as_dict(self) -> dict[str, object]:
        """As a JSON line has it."""
        return {
            "cell": self.key,
            "command": self.command,
            "parameters": dict(self.parameters),
            "box": self.box or None,
            "run": self.run.name if self.run else None,
            "state": self.state,
            "seconds": self.seconds,
            "dollars": self.dollars,
            "metrics": dict(self.metrics),
        }


@dataclass(frozen=True)
class SweepReport:
    """The cells in the sweep's order, and the metric by which they are compared."""

    name: str
    results: Sequence[CellResult]
    metric: str
    least: bool

    @property
    def ranked(self) -> list[CellResult]:
        """The cells that have the metric, the best first."""
        found = [
            one for one in self.results if math.isfinite(one.metrics.get(self.metric, math.nan))
        ]
        return sorted(found, key=lambda one: one.metrics[self.metric], reverse=not self.least)

    @property
    def names(self) -> list[str]:
        """The parameters, in the order of their first use."""
        return [*dict.fromkeys(name for one in self.results for name in one.parameters)]

    @property
    def metric_names(self) -> list[str]:
        """All metrics, that of the comparison first."""
        every = dict.fromkeys(name for one in self.results for name in one.metrics)
        return [*dict.fromkeys([self.metric] if self.metric in every else []) | every]


def report_sweep(
    options: BoxOptions, screen: Screen, text: str, metric: str | None, out: str | None
) -> None:
    """Write page, CSV and JSON lines of a sweep, named by its file or its name.

    Raises UsageError if there is no such sweep, or nothing can be written there.
    """
    given = expanded(out) if out else None
    if given:
        check_place(given, "--out")
    sweep, ledger = _find(options, text)
    results = _results(options, sweep, ledger, screen)
    report = _compared(sweep, results, metric)
    page = given or _usual_place(options, sweep.name)
    redact = redactor_of_all(options).text
    files = {
        page: sweep_page(report, redact),
        page.with_suffix(".csv"): redact(as_csv(report)),
        page.with_suffix(".jsonl"): redact(as_lines(report)),
    }
    for file, content in files.items():
        try:
            write_private(file, content)
        except OSError as error:
            raise UsageError(f"{file} can't be written: {error.strerror}", where="--out") from error
    best = report.ranked[:1]
    data = {
        "sweep": sweep.name,
        "report": str(page),
        "csv": str(page.with_suffix(".csv")),
        "lines": str(page.with_suffix(".jsonl")),
        "metric": report.metric or None,
        "best": best[0].as_dict() if best else None,
        "cells": [one.as_dict() for one in report.results],
    }
    screen.result(data, "\n".join([*_table(report), "", f"report: {page}"]))


def _find(options: BoxOptions, text: str) -> tuple[Sweep, Ledger]:
    file = expanded(text)
    key = options.repository[0]
    if file.is_file():
        sweep = read_sweep(file)
        return sweep, load_ledger(ledger_file(key, sweep.name))
    place = ledger_file(key, text)
    if not re.fullmatch(r"[\w-]+", text) or not place.is_file():
        raise UsageError(
            f"there is no file {text}, and no sweep of that name was queued from here.",
            where="--sweep",
        )
    ledger = load_ledger(place)
    return Sweep(text, ledger.known_cells()), ledger


def _results(options: BoxOptions, sweep: Sweep, ledger: Ledger, screen: Screen) -> list[CellResult]:
    """Ask each box for its cells' last runs; where it can't be asked, take what is here."""
    known = {box.name: box for box in reversed(all_boxes())}
    names = [name for name in dict.fromkeys(ledger.boxes.values()) if name in known]
    outcomes = fan_out(names, lambda name: _ask(replace(options, host=name), sweep))
    found: dict[str, CellResult] = {}
    for one in _at_home(sweep, {*ledger.boxes.values()}):
        found[one.key] = _better(found.get(one.key), one)
    for outcome in outcomes:
        if outcome.error:
            screen.warn(f"{outcome.host} was not asked: {outcome.error.what}")
        for one in outcome.value or ():
            found[one.key] = _better(found.get(one.key), one)
    empty = {cell.key: CellResult(cell.key, cell.command, cell.parameters) for cell in sweep.cells}
    return [
        replace(found.get(key, one), command=one.command, parameters=one.parameters)
        for key, one in empty.items()
    ]


def _better(one: CellResult | None, other: CellResult) -> CellResult:
    """Return the one that finished, else the one that began later."""
    if one is None or one.run is None or other.run is None:
        return other

    def rank(run: Run) -> tuple[bool, int]:
        return (run.state == "finished" and not run.failed and not run.stopped, run.started)

    return other if rank(other.run) >= rank(one.run) else one


def _ask(options: BoxOptions, sweep: Sweep) -> list[CellResult]:
    with BoxLogin.open(options, Reporter()) as box:
        last: dict[str, Run] = {}
        for run in reversed(box.state.runs):  # the newest is first
            if (key := sweep.key_of(run.name)) and run.repo_key == box.own:
                before = last.get(key)
                done = before and before.state == "finished" and not before.failed
                last[key] = before if done and before else run
        return [
            _result(key, box.name, run, ask_history(box, run).curves if run.begun else (),
                    box.state.time, box.known.price)
            for key, run in last.items()
        ]  # fmt: skip


def _at_home(sweep: Sweep, boxes: set[str]) -> list[CellResult]:
    """Return what is here of the cells' runs: at home, or as their box told last."""
    found: list[RunAtHome] = [
        one for box in (*all_boxes(), *ended_boxes()) if box.name in boxes for one in seen_on(box)
    ]
    found += [one for one in all_kept() if one.box in boxes]
    prices = {box.name: box.price for box in (*all_boxes(), *ended_boxes())}
    results = []
    for one in found:
        key = sweep.key_of(one.run.name)
        if key:
            history = one.history() if one.place else None
            curves = history.curves if history else ()
            price = prices.get(one.box, 0.0)
            results.append(_result(key, one.box, one.run, curves, one.box_time, price))
    return results


def _result(  # noqa: PLR0913, PLR0917 - all of a run
    key: str, box: str, run: Run, curves: Sequence[MetricCurve], now: int, price: float
) -> CellResult:
    seconds = run.seconds(now)
    ends = {curve.name: curve.points[-1][1] for curve in curves if curve.points}
    return CellResult(key, "", {}, box, run, seconds, spent(seconds, price), ends, tuple(curves))


def _compared(sweep: Sweep, results: Sequence[CellResult], metric: str | None) -> SweepReport:
    """Choose the metric: the one that was asked for, the sweep's, the first loss, or the first.

    Raises UsageError if no cell has the one that was asked for.
    """
    every = [*dict.fromkeys(name for one in results for name in one.metrics)]
    if metric is not None and metric not in every:
        there = f"There are: {', '.join(every)}" if every else "None was logged yet."
        raise UsageError(f"no cell has a metric {metric!r}.", where="--metric", hint=there)
    losses = [name for name in every if _LESS.search(name)]
    chosen = (
        metric or (sweep.metric if sweep.metric in every else "") or next(iter(losses or every), "")
    )
    least = sweep.least if chosen == sweep.metric else bool(_LESS.search(chosen))
    return SweepReport(sweep.name, results, chosen, least)


def _usual_place(options: BoxOptions, name: str) -> Path:
    root = repository_root(options.place) or options.place
    place = PullPlace(root.absolute(), ("boxstrap-results", "sweeps"))
    return place.make() / f"{name}.html"


def _rows(report: SweepReport) -> list[tuple[str, ...]]:
    """Return the table, the best first, then those without the metric."""
    ranked = report.ranked
    rest = [one for one in report.results if one not in ranked]
    metrics = report.metric_names
    head = (*report.names, *([] if report.names else ["command"]), *metrics,
            "state", "time", "cost", "box", "run")  # fmt: skip
    rows = [head]
    for one in [*ranked, *rest]:
        parameters = [one.parameters.get(name, "") for name in report.names] or [one.command]
        values = [_number(one.metrics.get(name)) for name in metrics]
        took = duration(one.seconds) if one.seconds is not None else ""
        cost = dollars(one.dollars) if one.dollars else ""
        run = one.run.name if one.run else ""
        rows.append((*parameters, *values, one.state, took, cost, one.box, run))
    return rows


def _table(report: SweepReport) -> list[str]:
    lines = aligned(_rows(report))
    best = report.ranked[:1]
    if best:
        which = " ".join(f"{name}={value}" for name, value in best[0].parameters.items())
        value = _number(best[0].metrics[report.metric])
        lines += ["", f"best by {report.metric}: {value} of {which or best[0].command}"]
    total = sum(one.dollars or 0.0 for one in report.results)
    return [*lines, *([f"all cells: {dollars(total)}"] if total else [])]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def as_csv(report: SweepReport) -> str:
    """Return a row a cell, in the sweep's order."""
    text = io.StringIO()
    names, metrics = report.names, report.metric_names
    rows = csv.writer(text)
    rows.writerow(
        ["cell", "command", *names, *metrics, "state", "seconds", "dollars", "box", "run"]
    )
    for one in report.results:
        rows.writerow(
            [one.key, one.command, *(one.parameters.get(name, "") for name in names),
             *(one.metrics.get(name, "") for name in metrics), one.state, one.seconds,
             one.dollars, one.box, one.run.name if one.run else ""]
        )  # fmt: skip
    return text.getvalue()


def as_lines(report: SweepReport) -> str:
    """Return a JSON object a cell, in the sweep's order."""
    return "".join(f"{json.dumps({'v': 1, **one.as_dict()})}\n" for one in report.results)


def sweep_page(report: SweepReport, redact: Callable[[str], str]) -> str:
    """Return the page as HTML; deterministic."""
    numbers = count(1)
    plots = []
    for name in report.metric_names:
        with_it = [
            (one, curve)
            for one in report.ranked or report.results
            for curve in one.curves
            if curve.name == name and len(curve.points) > 1
        ]
        if not with_it:
            continue
        axis = with_it[0][1].axis
        drawn = with_it[:MOST_LINES]
        lines = [PlotLine(redact(_words(one)), curve.points) for one, curve in drawn]
        left = len(with_it) - len(drawn)
        plot = Plot(
            redact(f"{name} by {'time' if axis == 'seconds' else axis}"),
            lines,
            in_seconds=axis == "seconds",
            note=f"The best {len(drawn)}; {left} more are not drawn." if left else "",
        )
        plots.append((plot, Markup(plot.svg(next(numbers)))))  # noqa: S704 - it escapes its input
    head, *rows = _rows(report)
    best = report.ranked[:1]
    total = sum(one.dollars or 0.0 for one in report.results)
    return fill(
        TEMPLATE,
        redact,
        report=report,
        done=sum(1 for one in report.results if one.run and one.state == "finished"),
        best=_words(best[0]) if best else "",
        best_value=_number(best[0].metrics[report.metric]) if best else "",
        total=dollars(total) if total else "",
        head=head,
        rows=rows,
        plots=plots,
        parallel=parallel_coordinates(report, redact) if best else "",
    )


def _words(one: CellResult) -> str:
    return " ".join(f"{name}={value}" for name, value in one.parameters.items()) or one.command


def parallel_coordinates(report: SweepReport, redact: Callable[[str], str]) -> Markup:
    """Return the ranked cells as lines over an axis for each parameter that varies, and the metric;
    the better a cell, the darker its line."""
    ranked = report.ranked
    columns: list[tuple[str, list[str]]] = [
        (name, [one.parameters.get(name, "") for one in ranked]) for name in report.names
    ]
    columns = [(name, values) for name, values in columns if len({*values}) > 1]
    columns.append((report.metric, [repr(one.metrics[report.metric]) for one in ranked]))
    step = (_WIDTH - 2 * _EDGE) / max(1, len(columns) - 1)
    heights, parts = [], []
    for at, (name, values) in enumerate(columns):
        x = _EDGE + step * at if len(columns) > 1 else _WIDTH / 2
        places, ticks = _scale(values)
        heights.append([(x, y) for y in places])
        parts.append(
            f'<line x1="{x:.1f}" y1="30" x2="{x:.1f}" y2="{_HEIGHT - 20}" stroke="#b6bac2"/>'
        )
        parts.append(f'<text x="{x:.1f}" y="18" text-anchor="middle" font-weight="600">'
                     f"{escape(redact(name))}</text>")  # fmt: skip
        parts += [f'<text x="{x + 5:.1f}" y="{y + 4:.1f}">{escape(redact(text))}</text>'
                  for y, text in ticks]  # fmt: skip
    lines = []
    for at in reversed(range(len(ranked))):  # the best on top
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (column[at] for column in heights))
        share = at / max(1, len(ranked) - 1)
        colour = "#c4502e" if at == 0 else "#2563ab"
        width = 2.6 if at == 0 else 1.2
        stroke = f'stroke="{colour}" stroke-opacity="{1 - 0.8 * share:.2f}" stroke-width="{width}"'
        lines.append(f'<polyline points="{points}" fill="none" {stroke}/>')
    view = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" font-size="11" role="img"'
    svg = f"<svg {view}>{''.join([*lines, *parts])}</svg>"
    return Markup(svg)  # noqa: S704 - each text in it is escaped


def _scale(values: Sequence[str]) -> tuple[list[float], list[tuple[float, str]]]:
    """Return where each value is on an axis, and its labels: numbers by size, else in order."""
    top, bottom = 30.0, float(_HEIGHT - 20)
    numbers = [_as_number(value) for value in values]
    if all(number is not None for number in numbers):
        found = [float(number or 0.0) for number in numbers]
        low, high = min(found), max(found)
        is_log = low > 0 and high / low >= 100
        scaled = [math.log(each) for each in found] if is_log else found
        low, span = min(scaled), (max(scaled) - min(scaled)) or 1.0
        places = [bottom - (each - low) / span * (bottom - top) for each in scaled]
        labels = dict(zip(places, (f"{each:.4g}" for each in found), strict=True))
        ends = sorted(labels)
        shown = ends if len(ends) <= 8 else [ends[0], ends[len(ends) // 2], ends[-1]]
        return places, [(place, labels[place]) for place in shown]
    order = [*dict.fromkeys(values)]
    gap = (bottom - top) / max(1, len(order) - 1)
    where = {value: bottom - gap * at for at, value in enumerate(order)}
    return [where[value] for value in values], [(y, value[:24]) for value, y in where.items()]


def _as_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
