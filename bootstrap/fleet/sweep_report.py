"""A sweep's results side by side: the cells' last runs, found on their boxes and at home."""

import os
import re
from dataclasses import replace

from bootstrap.boxes.at_home import RunAtHome, all_kept, seen_on
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.run import Run
from bootstrap.errors import UsageError
from bootstrap.fleet.comparison import (
    ComparedRun,
    Comparison,
    compare_by,
    run_at_home,
    run_there,
    usual_place,
    write_comparison,
)
from bootstrap.fleet.fan_out import fan_out
from bootstrap.fleet.sweep import Ledger, Sweep, ledger_file, load_ledger, read_sweep
from bootstrap.link.record import all_boxes, ended_boxes
from bootstrap.link.target import BoxOptions
from bootstrap.paths import expanded
from bootstrap.runs.page import named_page
from bootstrap.ui.screen import Reporter, Screen


def report_sweep(
    options: BoxOptions, screen: Screen, text: str, metric: str | None, out: str | None
) -> None:
    """Write page, CSV and JSON lines of a sweep, by its file or its name. Raises UsageError."""
    given = named_page(out, "--out")
    sweep, ledger = find_sweep(options, text)
    results = _results(options, sweep, ledger, screen)
    chosen, least = compare_by(metric, results, sweep.metric, least=sweep.least)
    report = Comparison(f"Sweep {sweep.name}", results, chosen, least)
    page = given or usual_place(options, "sweeps", sweep.name)
    data, said = write_comparison(options, report, page)
    screen.result({"sweep": sweep.name, **data}, said)


def find_sweep(options: BoxOptions, text: str) -> tuple[Sweep, Ledger]:
    """Return a sweep by its file or its name. Raises UsageError if there is none."""
    file = expanded(text)
    key = options.repository[0]
    if os.path.isfile(file):  # noqa: PTH113 - never raises
        sweep = read_sweep(file)
        return sweep, load_ledger(ledger_file(key, sweep.name))
    place = ledger_file(key, text)
    if not re.fullmatch(r"[\w-]{1,40}", text) or not place.is_file():
        raise UsageError(
            f"there is no file {text}, and no sweep of that name was queued from here.",
            where="--sweep",
        )
    ledger = load_ledger(place)
    return Sweep(text, ledger.known_cells()), ledger


def _results(
    options: BoxOptions, sweep: Sweep, ledger: Ledger, screen: Screen
) -> list[ComparedRun]:
    """Ask each box for its cells' last runs; where it can't be asked, take what is here."""
    known = {box.name: box for box in reversed(all_boxes())}
    names = [name for name in dict.fromkeys(ledger.boxes.values()) if name in known]
    outcomes = fan_out(names, lambda name: _ask(replace(options, host=name), sweep))
    told = _at_home(sweep, {*ledger.boxes.values()})
    for outcome in outcomes:
        if outcome.error:
            screen.warn(f"{outcome.host} was not asked: {outcome.error.what}")
        told += outcome.value or ()
    found: dict[str, ComparedRun] = {}
    for key, one in told:
        if ledger.boxes.get(key) == one.box:  # what another box says of its cell is not asked for
            found[key] = _better(found.get(key), one)
    return [
        replace(
            found.get(cell.key, ComparedRun("", "", {})),
            key=cell.key, command=cell.command, parameters=cell.parameters,
        )
        for cell in sweep.cells
    ]  # fmt: skip


def _better(one: ComparedRun | None, other: ComparedRun) -> ComparedRun:
    """Return the one that finished, else the one that began later."""
    if one is None or one.run is None or other.run is None:
        return other

    def rank(run: Run) -> tuple[bool, int]:
        return (run.state == "finished" and not run.failed and not run.stopped, run.started)

    return other if rank(other.run) >= rank(one.run) else one


def _ask(options: BoxOptions, sweep: Sweep) -> list[tuple[str, ComparedRun]]:
    with BoxLogin.open(options, Reporter()) as box:
        last: dict[str, Run] = {}
        for run in reversed(box.state.runs):  # the newest is first
            if (key := sweep.key_of(run.name)) and run.repo_key == box.own:
                before = last.get(key)
                done = before and before.state == "finished" and not before.failed
                last[key] = before if done and before else run
        return [(key, run_there(box, run)) for key, run in last.items()]


def _at_home(sweep: Sweep, boxes: set[str]) -> list[tuple[str, ComparedRun]]:
    """Return what is here of the cells' runs: at home, or as their box told last."""
    found: list[RunAtHome] = [
        one for box in (*all_boxes(), *ended_boxes()) if box.name in boxes for one in seen_on(box)
    ]
    found += [one for one in all_kept() if one.box in boxes]
    keys = ((sweep.key_of(one.run.name), one) for one in found)
    return [(key, run_at_home(one)) for key, one in keys if key]
