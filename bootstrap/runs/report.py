"""`report`: a run as one HTML page, from what its box kept and what was pulled from it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bootstrap.boxes.at_home import PullPlace, RunAtHome
from bootstrap.boxes.login import BoxLogin, redactor_of_all
from bootstrap.errors import BoxstrapError, NotSafeError, UsageError, write_error
from bootstrap.link.record import KnownBox, all_boxes, ended_boxes
from bootstrap.link.target import BoxOptions
from bootstrap.paths import expanded, write_private
from bootstrap.protocol.run import Run, repository_names
from bootstrap.protocol.run_details import END_BYTES
from bootstrap.protocol.run_history import RunHistory, ask_history
from bootstrap.protocol.verdict import Verdict, read_verdict
from bootstrap.runs.failure import find_failures
from bootstrap.runs.from_home import as_of, box_or_home
from bootstrap.runs.report_page import ReportedFile, RunReport, report_page
from bootstrap.text.sanitize import sanitize
from bootstrap.transfer.destination import MANIFEST, open_plain, why_refused
from bootstrap.ui.page import check_place, write_page
from bootstrap.ui.screen import Screen

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
    found = box_or_home(options, screen, [name] if name else [], with_details=True)
    if isinstance(found, list):
        _report_kept(options, screen, found[0], given)
        return
    with found as box:
        run = box.runs(name)[0]
        box.warn_of_unredacted()
        history = ask_history(box, run)
        report = _report(box, run, history, _results(box, run, history))
    file = given or _usual_place(options, box.name, run)
    _write(report_page(report, box.redactor.text), file, is_given=bool(given))
    _say(screen, run, file)


def _report_kept(options: BoxOptions, screen: Screen, kept: RunAtHome, given: Path | None) -> None:
    """Make the page of a run that is here, without its box."""
    screen.redact = redactor_of_all(options).text
    history = kept.history()
    if history is None:
        raise UsageError(
            f"what a report of {kept.run.name} is made of did not come home from {kept.box}.",
            where=kept.place,
            hint=f"Its log: boxstrap logs --host {kept.box} --run {kept.run.name}",
        )
    screen.note("home", as_of(kept))
    file = given or _made(PullPlace.again(Path(kept.place).parent)) / NAME
    _write(report_page(report_at_home(kept, history), screen.redact), file, is_given=bool(given))
    _say(screen, kept.run, file)


def _write(text: str, file: Path, *, is_given: bool) -> None:
    if is_given:
        write_page(file, text, "--out")
        return
    try:
        write_private(file, text)
    except OSError as error:
        raise write_error(file, error) from error


def _say(screen: Screen, run: Run, file: Path) -> None:
    screen.result(
        {"report": str(file), "run": run.as_dict()}, f"{run.name} {run.outcome()}\nreport: {file}"
    )


def _report(
    box: BoxLogin, run: Run, history: RunHistory, results: Sequence[ReportedFile]
) -> RunReport:
    failures = find_failures([run], box.details.log_ends, box.redactor.text, END_BYTES)
    return RunReport(
        box=box.name,
        repository=box.repository(run),
        run=run,
        now=box.state.time,
        history=history,
        verdict=_verdict(history),
        failure=failures.get(run),
        results=results,
        price=box.known.price,
        estimated_hours=_lease_hours(box.known),
    )


def report_at_home(kept: RunAtHome, history: RunHistory) -> RunReport:
    """Return the content of the page from what is here of the run."""
    name = f"{kept.run.repo_key}/{kept.run.name}"
    failures = find_failures([kept.run], {name: kept.log_tail(END_BYTES)}, str, END_BYTES)
    here = Path(kept.place).parent / MANIFEST
    box = next((one for one in [*all_boxes(), *ended_boxes()] if _is_of(kept, one)), None)
    return RunReport(
        box=kept.box,
        repository=next(iter(repository_names([kept.run.repo_key]).values())),
        run=kept.run,
        now=kept.box_time,
        history=history,
        verdict=_verdict(history),
        failure=failures.get(kept.run),
        results=read_manifest(here)
        or [ReportedFile(path, count) for path, count in history.results],
        price=box.price if box else 0.0,
        estimated_hours=_lease_hours(box) if box else 0.0,
    )


def _lease_hours(box: KnownBox) -> float:
    """Return the hours that the box's lease allowed; 0 without one."""
    seconds = box.lease.get("seconds")
    return float(seconds) / 3600 if isinstance(seconds, int | float) else 0.0


def _is_of(kept: RunAtHome, box: KnownBox) -> bool:
    return (box.name, box.created) == (kept.box, kept.created)


def _verdict(history: RunHistory) -> Verdict | None:
    try:
        return read_verdict(history.verdict.encode()) if history.verdict.strip() else None
    except BoxstrapError:
        return None


def _results(box: BoxLogin, run: Run, history: RunHistory) -> list[ReportedFile]:
    """Return the files that were pulled, from the manifest; else those on the box."""
    here = PullPlace.of(box.options.place, None, box.name, run).path / MANIFEST
    return read_manifest(here) or [ReportedFile(path, count) for path, count in history.results]


def read_manifest(file: Path) -> list[ReportedFile]:
    """Return the files of a manifest; none if it is missing or invalid."""
    try:
        with open_plain(file) as opened:
            rows = json.loads(opened.read(_MOST_MANIFEST))["files"]
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
    return _made(PullPlace.of(options.place, None, box, run)) / NAME


def _made(place: PullPlace) -> Path:
    """Return the folder, created if missing. Raises NotSafeError if it leads elsewhere."""
    try:
        return place.make()
    except OSError as error:
        raise write_error(place.path, error) from error
