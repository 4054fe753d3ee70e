"""`run` on several boxes: a run on each, one for each GPU, or the cells of a sweep."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.fleet.fan_out import fan_out, raise_for_failures
from bootstrap.link.target import Once
from bootstrap.paths import expanded
from bootstrap.tasks.command import Call, for_each_box
from bootstrap.tasks.options import flag_of

if TYPE_CHECKING:
    from bootstrap.boxes.run import Run
    from bootstrap.fleet.fan_out import Outcome
    from bootstrap.fleet.jobs import SweepView
    from bootstrap.fleet.sweep import Dealt, Sweep
    from bootstrap.setup.new_run import StartedRun
    from bootstrap.setup.request import RunOptions

Variables = tuple[tuple[str, str], ...]


def run_jobs(
    call: Call,
    hosts: Sequence[str],
    begin: Callable[[Call, Variables], None],
    wish: Callable[[], RunOptions],
) -> None:
    """Start a run on each box, or for each of its GPUs, with its rank among all. `begin` starts
    one; `wish` returns what was asked for. Raises BoxesFailedError."""
    from bootstrap.fleet.jobs import job_variables

    if call.given["each_gpu"]:
        outcomes = _run_on_each_gpu(call, hosts or [_only_box(call)], wish())
    else:
        of = {host: job_variables(rank, len(hosts)) for rank, host in enumerate(hosts)}
        outcomes = for_each_box(call, hosts, lambda own: begin(own, of[own.among]), brief=True)
    raise_for_failures(outcomes)


def _run_on_each_gpu(call: Call, hosts: Sequence[str], wish: RunOptions) -> list[Outcome[None]]:
    from bootstrap.fleet.jobs import job_variables, lanes_of, look

    if call.given["gpus"] or call.given["resume"]:
        raise UsageError("--each-gpu gives each run its GPU: leave out --gpus and --resume.")
    once = Once()
    request = replace(call.request(), host=None, once=once)
    looked = fan_out(hosts, lambda host: lanes_of(look(request, host), each_gpu=True))
    jobs = [(one.host, gpu) for one in looked for _, gpu in one.value or ()]
    wanted: dict[str, list[RunOptions]] = defaultdict(list)
    for rank, (host, gpu) in enumerate(jobs):
        of = job_variables(rank, len(jobs))
        wanted[host].append(wish.another(gpus=gpu, queue=wish.queue or "gpus", variables=of))
    failed = {one.host: one.error for one in looked if one.error}

    def begin(own: Call) -> None:
        _queue(own, failed, wanted[own.among])

    return for_each_box(call, hosts, begin, brief=True, once=once)


def run_sweep(call: Call, hosts: Sequence[str], words: Sequence[str]) -> None:
    """Queue the cells of a sweep that have no finished run. Raises BoxesFailedError."""
    from bootstrap.fleet.jobs import (
        look,
        look_at_all,
        options_by_box,
        plan_sweep,
        take_out,
        without_given_up,
    )
    from bootstrap.fleet.sweep import held_ledger, ledger_file, read_sweep, save_ledger
    from bootstrap.profile.consent import load_profile

    if not call.given["sweep"]:
        raise UsageError("--give-up is about a sweep: name it with --sweep FILE.")
    wrong = [name for name in _NOT_FOR_A_SWEEP if call.given[name]]
    if wrong or words:
        what = flag_of(wrong[0]) if wrong else "a command after --"
        raise UsageError(f"{what} is about one run; a sweep's file has its commands.")
    hosts, once = hosts or [_only_box(call)], Once()
    sweep = read_sweep(expanded(call.given["sweep"]))
    request = replace(call.request(), host=None, once=once)
    train = load_profile(request).profile.train
    commands = sweep.commands(train.command if train else "")
    file = ledger_file(request.repository[0], sweep.name)
    with held_ledger(file) as ledger:
        ledger.give_up(call.given["give_up"])
        ledger.note(sweep)
        hosts = without_given_up(hosts, ledger)
        view = look_at_all(sweep, hosts, ledger, lambda host: look(request, host))
        dealt = plan_sweep(sweep, view, ledger, hosts, each_gpu=bool(call.given["each_gpu"]))
        ledger.boxes |= {cell.key: lane[0] for cell, lane in dealt.given}
        save_ledger(file, ledger)  # before any box is asked
        wanted = options_by_box(sweep, dealt, view, commands)
        words_of = {cell.key: cell.words for cell, _ in dealt.given if cell.words}
        queued: list[int] = []

        def begin(own: Call) -> None:
            there = view.views.get(own.among)
            if there:
                stalled = [run.run for run in dealt.taken_out if run.box == there.name]
                take_out(own.options(), stalled)
            own_cells = wanted.get(there.name, ()) if there else ()
            _queue(own, view.failures, own_cells, words_of, queued.append)

        outcomes = for_each_box(call, hosts, begin, brief=True, once=once)
    call.screen.result({"sweep": dealt}, "\n".join(_summary(sweep, dealt, view, sum(queued))))
    raise_for_failures(outcomes)


def wait_for_sweep(call: Call, tell: Callable[[str, Run], None]) -> None:
    """Wait for the cells of a sweep, wherever they are. Raises UsageError, BoxesFailedError."""
    from bootstrap.fleet.sweep_report import find_sweep
    from bootstrap.runs.run_end import wait_for

    if call.given["host"] or call.given["hosts"] or call.given["run"] or call.given["all_"]:
        raise UsageError("--sweep knows its boxes and runs: leave out --host, --run and --all.")
    text = call.given["sweep"]
    sweep, ledger = find_sweep(call.options(), text)
    boxes = {cell.key: ledger.boxes.get(cell.key, "") for cell in sweep.cells}
    given = [box for box in dict.fromkeys(boxes.values()) if box not in ("", *ledger.given_up)]
    left = sum(box not in given for box in boxes.values())
    queue = f"boxstrap run --sweep {shlex.quote(text)}"
    if not given:
        raise UsageError(f"no cell of {sweep.name} is in a queue.", hint=f"Queue them: {queue}")
    if left:
        call.screen.warn(f"{left} cells of {sweep.name} are in no queue: {queue}")

    def wait(own: Call) -> None:
        def cell_of(name: str) -> str:  # only the box that was given a cell last counts
            key = sweep.key_of(name)
            return key if boxes.get(key) == own.among else ""

        wait_for(own.options(), own.screen, run=None, every=False, cell_of=cell_of, tell=tell)

    raise_for_failures(for_each_box(call, given, wait, brief=False))


_NOT_FOR_A_SWEEP = ("session", "gpus", "after", "after_any", "queue", "resume", "beside", "up")


def _queue(
    own: Call,
    failed: dict[str, BoxstrapError],
    wanted: Sequence[RunOptions],
    words_of: Mapping[str, str] = MappingProxyType({}),
    queued: Callable[[int], None] = lambda _: None,
) -> None:
    """Queue the runs of one box; `words_of` says what a cell is called, by its key; `queued` is
    called with their number, also if not all could be."""
    from bootstrap.fleet.jobs import queue_runs

    if error := failed.get(own.among):
        raise error
    begun: list[StartedRun] = []
    try:
        queue_runs(own.request(), own.screen, wanted, begun)
    finally:
        queued(len(begun))
    names = ", ".join(
        words_of.get(each.run.name.rpartition("-")[0][-8:], each.run.name) for each in begun
    )
    text = f"queued {len(begun)}: {names}" if begun else "nothing to queue"
    own.screen.result({"runs": begun}, text)


def _only_box(call: Call) -> str:
    """Return the repository's only box. Raises WhichBoxError."""
    from bootstrap.link.registry import only_box
    from bootstrap.repo.local import current

    return only_box(current(call.place)[0]).name


def _summary(sweep: Sweep, dealt: Dealt, view: SweepView, queued: int) -> list[str]:
    counts = {
        "finished": len(dealt.done),
        "running or queued before": len(dealt.live),
        "queued now" + f" ({dealt.failed} had not finished)" * bool(dealt.failed): queued,
        "could not be queued": len(dealt.given) - queued,
    }
    said = [f"{count} {what}" for what, count in counts.items() if count]
    total = len(sweep.cells)
    lines = ["", f"{sweep.name}: {total} cells: {', '.join(said) or 'none could be queued'}"]
    for name, why in view.unreached.items():
        if count := sum(box == name for _, box in dealt.held):
            lines += [
                f"{count} stay with {name}, which can't be asked: {why}",
                f"  If it is gone for good, let others have them: --give-up {name}",
            ]
    return lines
