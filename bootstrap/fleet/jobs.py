"""Runs on several boxes: one on each, one for each GPU, or the cells of a sweep in their queues."""

import contextlib
import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.run import Run
from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.fleet.fan_out import fan_out
from bootstrap.fleet.sweep import CellRun, Dealt, Lane, Ledger, Sweep, deal
from bootstrap.link.cancel import CancelToken
from bootstrap.link.exchange import answer_number
from bootstrap.link.record import all_boxes, ended_boxes
from bootstrap.link.registry import find_known
from bootstrap.link.target import BoxOptions, parse_host
from bootstrap.providers.accounts import find_account
from bootstrap.runs.known_runs import known_on
from bootstrap.runs.run_end import stop_run
from bootstrap.setup.new_run import StartedRun, begin_run
from bootstrap.setup.request import RunOptions, SetupRequest
from bootstrap.setup.sequence import prepare, refuse_alone
from bootstrap.ui.screen import Reporter, Screen

_GPU_FILE, _GPU_BYTES = "gpu.said", 4096
"""What the box's last verdict said in words, with the number of its GPUs."""


def job_variables(rank: int, count: int) -> tuple[tuple[str, str], ...]:
    """Return the variables of one of `count` runs that are started together, also by the names that
    SkyPilot has for them."""
    return tuple(
        (f"{whose}_{name}", str(value))
        for whose in ("BOXSTRAP", "SKYPILOT")
        for name, value in (("JOB_RANK", rank), ("NUM_JOBS", count))
    )


@dataclass(frozen=True)
class BoxCapacity:
    """What a box has: its GPUs, and the runs of the current repository."""

    name: str
    gpus: int
    runs: tuple[Run, ...]


def look(request: SetupRequest, host: str) -> BoxCapacity:
    """Ask one box, without showing anything. Raises as `BoxLogin.open`."""
    with BoxLogin.open(replace(request, host=host), Reporter()) as box:
        own = tuple(run for run in box.state.runs if run.repo_key == box.own)
        return BoxCapacity(box.name, count_gpus(box), own)


def count_gpus(box: BoxLogin) -> int:
    """Return how many GPUs the box's last verdict saw; 0 where there is none, 64 at the most."""
    said = box.tail(_GPU_FILE, _GPU_BYTES).decode(errors="replace")
    rows = (line.split() for line in said.splitlines())
    numbers = [row[1] for row in rows if row[:1] == ["gpus"] and len(row) == 2]
    return min(answer_number(numbers[-1]) or 0, 64) if numbers else 0


def lanes_of(view: BoxCapacity, *, each_gpu: bool) -> list[Lane]:
    """Return where runs may be at work at the same time. Raises UsageError for a box that has no
    GPU, and should have a run for each."""
    if not each_gpu:
        return [(view.name, "")]
    if not view.gpus:
        raise UsageError(
            "no GPU was seen on this box, and each should get a run.",
            hint="What it has: boxstrap verify --host " + view.name,
        )
    return [(view.name, str(number)) for number in range(view.gpus)]


def cell_runs(sweep: Sweep, box: str, runs: Sequence[Run], *, reached: bool) -> list[CellRun]:
    found = []
    for run in runs:
        key = sweep.key_of(run.name)
        if not key or run.state == "waiting":  # it was never started, and is made again by its id
            continue
        if run.goes_on:
            waits = run.state == "queued" and not run.attended
            state = ("stalled" if waits else "live") if reached else "unknown"
        else:
            state = "failed" if run.failed or run.stopped or run.state != "finished" else "done"
        found.append(CellRun(key, box, run.name, state))
    return found


@dataclass(frozen=True)
class SweepView:
    """A sweep's boxes as they are now, and what they have of its cells."""

    views: Mapping[str, BoxCapacity]  # by host; only those that answered
    failures: dict[str, BoxstrapError]  # by host, of those that were named
    runs: tuple[CellRun, ...]
    unreached: Mapping[str, str]
    """Boxes that keep their cells, by name, with why they could not be asked."""


def without_given_up(hosts: Sequence[str], ledger: Ledger) -> list[str]:
    """Return the boxes that get cells. Raises UsageError if none is left."""
    found = [host for host in hosts if _name_of(host) not in ledger.given_up]
    if not found:
        raise UsageError(f"{', '.join(hosts)} was given up, and no other box is named.")
    return found


def look_at_all(
    sweep: Sweep, hosts: Sequence[str], ledger: Ledger, ask: Callable[[str], BoxCapacity]
) -> SweepView:
    """Ask the boxes, and take what is known of others that were given cells of this sweep.

    A box that can't be asked keeps its cells, unless it was given up or its provider says that it
    is gone; what it had finished when it was asked last counts.
    """
    known_here = {box.name for box in all_boxes()}
    names = {name: name if name in known_here else "" for name in ledger.boxes.values()}
    wanted = [*hosts]
    known = {_name_of(host) for host in hosts}
    wanted += [host for name, host in names.items() if host and name not in known]
    asked = [host for host in wanted if _name_of(host) not in ledger.given_up]
    outcomes = fan_out(asked, ask)
    views = {one.host: one.value for one in outcomes if one.value is not None}
    runs: list[CellRun] = []
    for view in views.values():
        runs += cell_runs(sweep, view.name, view.runs, reached=True)
    unreached: dict[str, str] = {}
    failed = {_name_of(one.host): one.error for one in outcomes if one.error}
    lost = {*failed, *(name for name, host in names.items() if not host), *ledger.given_up}
    for name in lost:
        freed = name in ledger.given_up or not names.get(name, "there") or _is_gone(name)
        seen = [
            run
            for box in (*all_boxes(), *ended_boxes())
            if box.name == name
            for run in cell_runs(sweep, name, [one.run for one in known_on(box)], reached=False)
        ]
        runs += [run for run in seen if run.state == "done" or not freed]
        if not freed:
            error = failed.get(name)
            unreached[name] = error.what if error else ""
    bad = {one.host: one.error for one in outcomes if one.error and one.host in hosts}
    return SweepView(views, bad, tuple(runs), unreached)


def plan_sweep(
    sweep: Sweep, view: SweepView, ledger: Ledger, hosts: Sequence[str], *, each_gpu: bool
) -> Dealt:
    """Return which cells are queued on which of `hosts`. Raises UsageError, see `lanes_of`."""
    lanes = [
        lane
        for host in hosts
        if host in view.views
        for lane in lanes_of(view.views[host], each_gpu=each_gpu)
    ]
    lanes.sort(key=lambda lane: lane[1])  # a cell on each box before a second one on any
    return deal(sweep, view.runs, ledger, lanes, view.unreached)


def options_by_box(
    sweep: Sweep, dealt: Dealt, view: SweepView, commands: Mapping[str, str]
) -> dict[str, list[RunOptions]]:
    """Return the runs to queue, by the name of their box."""
    wanted: dict[str, list[RunOptions]] = {}
    ranks = {cell.key: rank for rank, cell in enumerate(sweep.cells)}
    for cell, (box, gpus) in dealt.given:
        before = sum((run.key, run.box) == (cell.key, box) for run in view.runs)
        # Made from what it is: asked for twice, it starts once.
        own = f"{sweep.name}/{cell.key}/{box}/{before}"
        options = RunOptions(
            command=commands[cell.key],
            session=sweep.session(cell),
            gpus=gpus,
            queue="gpus",
            beside=True,  # what is compared began from nothing
            variables=(
                *job_variables(ranks[cell.key], len(sweep.cells)),
                ("BOXSTRAP_SWEEP", sweep.name),
                ("BOXSTRAP_CELL", cell.key),
            ),
            id=hashlib.sha256(own.encode()).hexdigest()[:16],
        )
        wanted.setdefault(box, []).append(options)
    return wanted


def take_out(options: BoxOptions, runs: Sequence[str]) -> None:
    """Take queued runs out of their queue. Raises as `stop_run`."""
    from bootstrap.ui.screens import JsonScreen

    for run in runs:
        stop_run(options, JsonScreen(io.StringIO()), run=run, every=False, setup=False)


def queue_runs(
    request: SetupRequest, screen: Screen, wanted: Sequence[RunOptions], done: list[StartedRun]
) -> None:
    """Queue runs on one box, in order, and add each to `done`. Raises as `start_run`, with what was
    not queued."""
    if not wanted:
        return
    try:
        context = prepare(replace(request, run=wanted[0]), screen, CancelToken())
        with contextlib.closing(context.box):
            refuse_alone(context.payload.profile)
            for each in wanted:
                of_one = replace(context, request=replace(context.request, run=each))
                done.append(begin_run(of_one, screen, lambda _: None))
    except BoxstrapError as error:
        said = f"{len(done)} of {len(wanted)} were queued; the same line queues the others."
        error.hint = f"{error.hint}\n{said}".lstrip()
        raise


def _name_of(host: str) -> str:
    box = find_known(parse_host(host))
    return box.name if box else host


def _is_gone(name: str) -> bool:
    """Whether its provider says that there is no such box; False if it can't be asked."""
    box = next((box for box in all_boxes() if box.name == name), None)
    if box is None:
        return True
    if not box.target.is_rented:
        return False
    provider, _, box_id = box.host_text.partition(":")
    try:
        account = find_account(provider)
        return account is not None and account.is_gone(box_id)
    except BoxstrapError:
        return False
