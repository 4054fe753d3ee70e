"""`report`: a run as one HTML page, from what its box kept and what was pulled from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bootstrap.errors import BoxstrapError, NotSafeError, cant_write
from bootstrap.link.answers import number
from bootstrap.link.handle import BoxOptions
from bootstrap.paths import expanded, write_private
from bootstrap.protocol.run import Run
from bootstrap.protocol.run_details import END_BYTES
from bootstrap.protocol.run_history import RunHistory, ask_history
from bootstrap.runs.connection import BoxConnection, connect
from bootstrap.runs.failure import find_failures
from bootstrap.runs.pull_place import PullPlace
from bootstrap.runs.report_page import ReportedFile, RunReport, page
from bootstrap.secrets.values import warn_of_unredacted
from bootstrap.text.sanitize import sanitize
from bootstrap.transfer.names import MANIFEST, why_refused
from bootstrap.ui.page import check_place, write_page
from bootstrap.ui.screen import Screen
from bootstrap.verdict import Verdict, read

NAME = "boxstrap-report.html"
_MOST_MANIFEST = 64 * 1024 * 1024
_MOST_RESULTS = 1000


def make_report(options: BoxOptions, screen: Screen, name: str | None, out: str | None) -> None:
    """Ask the box, and write the page; without `out` next to the run's results.

    Raises UsageError if there is no such run or the page can't be written; UnreachableError.
    """
    given = expanded(out) if out else None
    if given:
        check_place(given, "--out")
    with connect(options, screen, with_details=True) as connection:
        run = connection.runs(name)[0]
        known, values = connection.box.known, connection.redactor.secrets
        warn_of_unredacted(known, connection.box_state, screen, values)
        history = ask_history(
            connection.link.wire,
            run,
            workdir=connection.workdir,
            redact=connection.redacted_by_box,
        )
        results = _results(options, connection, run, history)
        report = _report(connection, run, history, results)
    text = page(report, connection.redactor.text)
    file = given or _usual_place(options, known.name, run)
    if given:
        write_page(file, text, "--out")
    else:
        write_private(file, text)
    screen.result(
        {"report": str(file), "run": run.as_dict()}, f"{run.name} {run.outcome()}\nreport: {file}"
    )


def _report(
    connection: BoxConnection, run: Run, history: RunHistory, results: Sequence[ReportedFile]
) -> RunReport:
    failures = find_failures(
        [run], connection.details.log_ends, connection.redactor.text, END_BYTES
    )
    return RunReport(
        box=connection.box.known.name,
        repository=connection.repository(run),
        run=run,
        now=number(connection.box_state.facts.get("time", "")) or 0,
        history=history,
        verdict=_verdict(history),
        failure=failures.get(run),
        results=results,
    )


def _verdict(history: RunHistory) -> Verdict | None:
    try:
        return read(history.verdict.encode()) if history.verdict.strip() else None
    except BoxstrapError:
        return None


def _results(
    options: BoxOptions, connection: BoxConnection, run: Run, history: RunHistory
) -> list[ReportedFile]:
    """Return the files that were pulled, from the manifest; else those on the box."""
    here = PullPlace.of(options.place, None, connection.box.known.name, run).path / MANIFEST
    return read_manifest(here) or [ReportedFile(path, count) for path, count in history.results]


def read_manifest(file: Path) -> list[ReportedFile]:
    """Return the files of a manifest; none if it is missing or invalid."""
    try:
        if file.stat().st_size > _MOST_MANIFEST:
            return []
        rows = json.loads(file.read_text(encoding="utf-8"))["files"]
        return [
            ReportedFile(sanitize(row["path"]), int(row["size"]), sanitize(row["sha256"])[:64])
            for row in rows[:_MOST_RESULTS]
        ]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return []


def _usual_place(options: BoxOptions, box: str, run: Run) -> Path:
    """Return a file in the pull's folder (created here, never sent). Raises NotSafeError."""
    if why := why_refused(run.name):  # a box may call a run `..`
        raise NotSafeError(f"the box's run {run.name} {why}.", hint="Name a file: --out FILE")
    place = PullPlace.of(options.place, None, box, run)
    try:
        return place.make() / NAME
    except OSError as error:
        raise cant_write(place.path, error) from error
