"""`run_setup`: from a request to a running training, in the order of this module."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bootstrap.cancel import CancelToken
from bootstrap.codes import explain
from bootstrap.errors import BoxstrapError
from bootstrap.link.exchange import exchange
from bootstrap.plan import PlanRow, rows
from bootstrap.protocol.probe import BoxState, parse
from bootstrap.setup.early_login import begin_login
from bootstrap.ui.reporter import Reporter

if TYPE_CHECKING:
    from bootstrap.profile.load import LoadedProfile
    from bootstrap.protocol.run import Run
    from bootstrap.repo.changes import ChangeCount
    from bootstrap.setup.context import SetupContext
    from bootstrap.setup.executor import SetupExecutor
    from bootstrap.setup.request import SetupRequest
    from bootstrap.setup.result import SetupResult

FROM_INPUT = """bash -c 'eval "$(cat)"' bash"""
"""Runs a script from stdin; `bash -s` would read it byte by byte, with a system call for each."""


def run_setup(
    request: SetupRequest, reporter: Reporter | None = None, cancel: CancelToken | None = None
) -> SetupResult:
    """Set the box up as its profile says, and wait for the training's first output.

    May be called in several threads at the same time, with a box for each. `reporter` receives
    progress, by default none; `cancel` makes it raise CancelledError, while the box continues.
    Raises the errors of `bootstrap.errors`, but a training that was not started, or failed
    immediately, is a result: `SetupResult.raise_for_status` raises for it.

        >>> result = run_setup(SetupRequest(host="root@203.0.113.7:46769", repo=Path("homework")))
        >>> result.raise_for_status()
        >>> print(result.box, result.run.name, result.first_lines)
    """
    began = time.monotonic()
    cancel = cancel or CancelToken()
    try:
        return _run(begin(request, reporter or Reporter(), cancel), began)
    except BoxstrapError:
        cancel.check()  # cancelling cuts the wire, which can cause any of these errors
        raise


def begin(request: SetupRequest, reporter: Reporter, cancel: CancelToken) -> SetupContext:
    """Prepare a setup. Raises as `get_context`.

    The login to a known box is started first, in parallel with the imports for the profile.
    """
    early = begin_login(request, reporter.say, cancel)
    from bootstrap.setup.context import get_context

    return get_context(request, reporter, cancel, early)


def _run(context: SetupContext, began: float) -> SetupResult:
    try:
        executor, box_state, setup = drive(context)
        if setup and executor.started_run and not box_state.live_run:
            box_state = context.box_state_after_start()
        elif setup:
            box_state = context.box_state()
        return _result(executor, box_state, setup, began)
    finally:
        context.link.close()


def drive(context: SetupContext) -> tuple[SetupExecutor, BoxState, str]:
    """Set the box up; return the executor, the box's state before, and the setup's id.

    Raises as `SetupExecutor.run`.
    """
    # Imported here, while the box answers, to not delay the login.
    from bootstrap.secrets.values import warn_of_unredacted
    from bootstrap.setup.context import warn_of_provider
    from bootstrap.setup.executor import SetupExecutor
    from bootstrap.sshconfig.alias import preload

    executor = SetupExecutor(context)
    preload(context.box)
    box_state = context.box_state()
    warn_of_provider(context, box_state)
    warn_of_unredacted(context.box.known, box_state, context.reporter, context.secrets_here)
    setup = executor.run(box_state)
    context.remember()
    return executor, box_state, setup


def _result(executor: SetupExecutor, box_state: BoxState, setup: str, began: float) -> SetupResult:
    from bootstrap.protocol import first_output
    from bootstrap.secrets.values import redacted_by_box
    from bootstrap.setup import result
    from bootstrap.setup.prove_environment import start_if_new
    from bootstrap.sshconfig.alias import update_alias

    context = executor.context
    proof = start_if_new(context, box_state) if setup else None
    reporter, payload = context.reporter, context.payload
    blocking = _blocking(box_state)
    run = first_lines = None
    if payload.profile.train and not blocking:
        run = result.run_of_work(box_state, payload.source.commit)
    if run and (executor.started_run or (setup and run.state == "running")):
        reporter.say(first_output.waits_for_output(run.name))
        watch = partial(
            first_output.watch_beginning,
            run=run,
            workdir=payload.profile.box.workdir,
            redact=redacted_by_box(context.box.known, box_state, context.secrets_here),
        )
        beginning = context.link.ask(watch)
        run = dataclasses.replace(run, state=beginning.state, rc=beginning.rc)
        first_lines = tuple(map(reporter.redact, beginning.lines))
    if proof:
        proof.report()
    if box_state.lease and context.box.known.lease:
        held = {**context.box.known.lease, "held": box_state.lease.held}
        context.box.save(dataclasses.replace(context.box.known, lease=held))
    return result.SetupResult(
        box=context.box.known.name,
        setup=setup,
        alias=update_alias(context.box, reporter),
        commit=payload.source.commit,
        snapshot=payload.source.snapshot,
        changes=payload.changes,
        repo_dir=result.repo_dir(box_state, payload.source.name),
        run=run,
        first_lines=first_lines,
        waits_for=blocking,
        differs=tuple(result.differences(box_state)),
        seconds=time.monotonic() - began,
        own_folder=executor.own_folder,
        handle=context.box,
        profile=payload.profile,
        box_state=box_state,
    )


def _blocking(box_state: BoxState) -> Run | None:
    """Return the live run in the repository's folder if tree, environment or work wait for it."""
    waits = "alive" in box_state.plan.values() and box_state.plan.get("train") != "done"
    return box_state.live_run if waits else None


@dataclass(frozen=True)
class SetupPlan:
    """What a setup would do on a box, and why."""

    box: str
    commit: str
    snapshot: str
    changes: ChangeCount
    rows: list[PlanRow]
    reused: str
    """A sentence about the image's packages that its environment reuses; "" for none."""
    loaded: LoadedProfile


def plan_setup(request: SetupRequest, reporter: Reporter) -> SetupPlan:
    """Ask the box for a plan, by the script if the probe brought none; nothing is stored there."""
    context = begin(request, reporter, CancelToken())
    try:
        box_state = _planned(context)
    finally:
        context.link.close()
    payload, name = context.payload, context.box.known.name
    source = payload.source
    reused = box_state.reused
    return SetupPlan(
        name,
        source.commit,
        source.snapshot,
        payload.changes,
        rows(payload.steps, box_state.plan),
        explain("image-reused", reused).what if reused else "",
        context.loaded,
    )


def _planned(context: SetupContext) -> BoxState:
    """Return the box's state, including a plan."""
    box_state = context.box_state()
    if box_state.plan and not context.request.restart:
        return box_state
    command = f"{FROM_INPUT} plan" + (" restart" if context.request.restart else "")
    script = context.payload.script.encode()
    return parse(exchange(context.link.wire, command, stdin=script, timeout=120))
