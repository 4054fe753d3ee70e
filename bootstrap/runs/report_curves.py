"""The plots of a run's report: its metrics, and the use of GPUs and machine. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from bootstrap.box.metrics import WORDS
from bootstrap.protocol.run import Run
from bootstrap.protocol.run_history import MetricCurve, SampleHead, SampleRow
from bootstrap.runs.report_plots import Plot, PlotLine
from bootstrap.text.sizes import duration, number

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
        found = _FAMILY.search(curve.name)
        families.setdefault((found[0] if found else curve.name, curve.axis), []).append(curve)
    chosen = sorted(families.items(), key=lambda family: family[0][0] != "loss")[:MOST_PLOTS]
    plots = [_metric_plot(few[:MOST_LINES], redact) for _, few in chosen]
    return plots, len(curves) - sum(len(plot.lines) for plot in plots)


def _metric_plot(curves: Sequence[MetricCurve], redact: Callable[[str], str]) -> Plot:
    axis, names = curves[0].axis, [redact(curve.name) for curve in curves]
    notes = [_about(name, curve) for name, curve in zip(names, curves, strict=True)]
    return Plot(
        f"{', '.join(names)} by {'time' if axis == 'seconds' else axis}",
        [PlotLine(name, curve.points) for name, curve in zip(names, curves, strict=True)],
        in_seconds=axis == "seconds",
        note=" ".join(notes),
    )


def _about(name: str, curve: MetricCurve) -> str:
    """Describe what a curve's plot does not show."""
    last = f" {curve.points[-1][1]:.4g} at the end" if curve.points else " no number"
    means = ""
    if curve.count > len(curve.points) > 0:
        means = f", {number(curve.count)} values: each point stands for its neighbours"
    odd = ""
    if curve.odd is not None:
        is_time = curve.axis == "seconds"
        where = f"after {duration(curve.odd)}" if is_time else f"at {curve.axis} {curve.odd:,.6g}"
        odd = f", and became nan or inf {where}"
    return f"{name}:{last}{means}{odd}."


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
    return max((value / one for value in values if value), default=None)
