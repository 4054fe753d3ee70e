"""A run as one page: its outcome, its metrics, the use of GPUs and machine, its setup. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import count

from markupsafe import Markup

from bootstrap import __version__
from bootstrap.plan import NAMES
from bootstrap.protocol.run import Run
from bootstrap.protocol.run_history import RunHistory
from bootstrap.runs.failure import Failure
from bootstrap.runs.report_curves import machine_plots, metric_plots, use_words
from bootstrap.runs.report_plots import Plot
from bootstrap.text.sizes import duration, size
from bootstrap.ui.page import fill
from bootstrap.ui.steps import Steps
from bootstrap.ui.verdict_table import end
from bootstrap.verdict import Verdict

TEMPLATE = "report.html.j2"


@dataclass(frozen=True)
class ReportedFile:
    """A file of the results; `sha256` is "" if it was not pulled."""

    path: str
    bytes: int
    sha256: str = ""


@dataclass(frozen=True)
class RunReport:
    """The content of the page."""

    box: str
    repository: str
    run: Run
    now: int
    """On the box's clock, like all times of a run."""
    history: RunHistory
    verdict: Verdict | None = None
    failure: Failure | None = None
    results: Sequence[ReportedFile] = ()
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


def page(report: RunReport, redact: Callable[[str], str] = str) -> str:
    """Return the page as HTML; deterministic."""
    history, run = report.history, report.run
    head, rows = history.read_samples()
    metrics, left_out = metric_plots(history.curves, redact)
    numbers = count(1)

    def drawn(plots: Sequence[Plot]) -> list[tuple[Plot, Markup]]:
        # A plot escapes its input.
        return [(plot, Markup(plot.svg(next(numbers)))) for plot in plots]  # noqa: S704

    return fill(
        TEMPLATE,
        redact,
        report=report,
        run=run,
        mood=_mood(run),
        began=_moment(run.begun or run.started),
        took=_took(run, report.now),
        metrics=drawn(metrics),
        left_out=left_out,
        log_words=_log_words(history),
        machine=drawn(machine_plots(head, rows, run)),
        use=use_words(head, rows, run),
        steps=step_bars(history),
        changes=[[*line.split(" ", 2), "", ""][:3] for line in history.changes],
        verdict_end=end(report.verdict) if report.verdict else "",
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


def _mood(run: Run) -> str:
    """Return the colour class of its outcome."""
    if run.failed:
        return "return"
    return "warn" if run.stopped else "keep"


def _moment(seconds: int) -> str:
    if not 0 < seconds < 1 << 35:
        return "?"
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


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
