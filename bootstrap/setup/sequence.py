"""`run_setup`: from a request to a running training, in the order of this module."""

from __future__ import annotations

import time
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, cast

from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.probe import BoxState, parse_probe
from bootstrap.boxes.run import MADE_NOTHING
from bootstrap.errors import BoxstrapError, ReturnBoxError, UsageError
from bootstrap.link.cancel import CancelToken
from bootstrap.link.exchange import BASH, run_script, shell_command
from bootstrap.link.query import build_query
from bootstrap.link.registry import box_by_name
from bootstrap.link.target import given_object
from bootstrap.steps.event_codes import edited_there, explain
from bootstrap.steps.plan import PlanRow, plan_rows
from bootstrap.ui.screen import Reporter
from bootstrap.value import Document, dataclass, replace

if TYPE_CHECKING:
    from bootstrap.boxes.verdict import Verdict
    from bootstrap.profile.load import LoadedProfile
    from bootstrap.profile.schema import Profile
    from bootstrap.repo.snapshot_store import ChangeCount
    from bootstrap.setup.context import SetupContext
    from bootstrap.setup.executor import SetupExecutor
    from bootstrap.setup.request import SetupRequest
    from bootstrap.setup.result import SetupResult


def run_setup(
    request: SetupRequest, reporter: Reporter | None = None, cancel: CancelToken | None = None
) -> SetupResult:
    """Set the box up as its profile says, and wait for the training's first output.

    May be called in several threads at the same time, with a box for each. `reporter` receives
    progress, by default none; `cancel` makes it raise CancelledError, while the box continues.
    Raises the errors of `bootstrap.errors`, but a training that was not started, or failed
    immediately or before, is a result: `SetupResult.raise_for_status` raises for it.

        >>> result = run_setup(SetupRequest(host="root@203.0.113.7:46769", repo=Path("homework")))
        >>> result.raise_for_status()
        >>> print(result.box, result.run.name, result.first_lines)
    """
    began = time.monotonic()
    cancel = given_object("cancel", cancel, CancelToken)
    reporter = given_object("reporter", reporter, Reporter)
    request = request.checked()
    try:
        context = prepare(request, reporter, cancel)
        try:
            if not request.holds:
                refuse_alone(context.payload.profile)
            return complete(context, began)
        finally:
            context.box.close()
    except BoxstrapError:
        cancel.check()  # cancelling cuts the wire, which can cause any of these errors
        raise


def prepare(request: SetupRequest, reporter: Reporter, cancel: CancelToken) -> SetupContext:
    """Prepare what sets the box up or starts a run there. Raises as `get_context`."""
    context = _look(request, reporter, cancel)
    from bootstrap.setup.context import keep_lease

    context.box.note_given(context.payload.secrets.names)
    keep_lease(context.box, context.payload)
    return context


def _look(request: SetupRequest, reporter: Reporter, cancel: CancelToken) -> SetupContext:
    """Get the context, and start the login to a known box before the imports for the profile."""
    early = _begin_login(request, reporter, cancel)
    from bootstrap.setup.context import get_context

    return get_context(request, reporter, cancel, early)


def _begin_login(request: SetupRequest, reporter: Reporter, cancel: CancelToken) -> BoxLogin | None:
    """Start the login to the known box that is meant, before a profile is read.

    It doesn't depend on the profile: the box is where it was, with the same user. An unknown box
    is not dialed. None if the box can't be determined yet, if there is an
    error (raised later in its place), or for an ssh command with -L, of which `BoxLogin.find`
    would speak twice.
    """
    if " -L" in (request.host or ""):
        return None
    try:
        key = "" if request.host else request.repository[0]
        box = BoxLogin.find(request, reporter, repo_key=key, cancel=cancel)
        before = box_by_name(box.name)
    except BoxstrapError:
        return None
    if box.is_known:
        if before is None or before.user != box.known.user:
            return None
        box.begin(asks=request.run is None)
    return box


def refuse_alone(profile: Profile) -> None:
    """Raise UsageError if one box alone is to begin a training of several nodes."""
    if profile.train and profile.train.nodes > 1:
        raise alone_error(profile.train.nodes, 1)


def alone_error(nodes: int, boxes: int) -> UsageError:
    """Return the error for another number of boxes than the training has nodes."""
    about = "one box" if boxes == 1 else f"{boxes} boxes"
    return UsageError(
        f"train.nodes is {nodes}, and this is about {about}.",
        hint="Name each with --host, or all with --hosts GROUP; to rent them: boxstrap up "
        f"--count {nodes} --one-network; to train on each alone: --set train.nodes=1",
    )


def complete(context: SetupContext, began: float) -> SetupResult:
    """Do what was prepared, from the probe to the training's first output."""
    executor, box_state, setup = execute(context)
    over = {(run.repo_key, run.name) for run in box_state.runs if run.is_over}
    while setup:
        if executor.started_run and not box_state.live_run:
            # Without a plan: its checks would slow down the training's start.
            box_state = context.box.state_for("")
            break
        box_state = context.box_state()
        if box_state.live_run or not executor.left_alone:
            break
        setup = executor.run(box_state) or setup  # the live run has just ended
    return result_of(executor, box_state, setup, began, over)


def execute(context: SetupContext) -> tuple[SetupExecutor, BoxState, str]:
    """Set the box up; return executor, state before, setup's id. Raises as `SetupExecutor.run`."""
    # Imported here, while the box answers, to not delay the login.
    from bootstrap.boxes import alias  # noqa: F401 - `update_alias` at the end needs it
    from bootstrap.setup.context import warn_of_provider
    from bootstrap.setup.executor import SetupExecutor

    executor = SetupExecutor(context)
    box_state = context.box_state()
    warn_of_provider(context, box_state)
    context.box.warn_of_unredacted()
    setup = executor.run(box_state)
    context.remember()
    return executor, box_state, setup


def result_of(
    executor: SetupExecutor,
    box_state: BoxState,
    setup: str,
    began: float,
    over: Collection[tuple[str, str]] = (),
) -> SetupResult:
    """Return how the setup ended. `over` are the runs that were over before it, by key and name."""
    from bootstrap.boxes import follow
    from bootstrap.boxes.alias import update_alias
    from bootstrap.setup import result

    context, box = executor.context, executor.context.box
    reporter, payload = box.reporter, context.payload
    is_right = box_state.plan.get("train") in {"done", "failed"}
    waits = "alive" in box_state.plan.values() and not is_right
    blocking = box_state.live_run if waits else None
    run = None
    lines: tuple[str, ...] = ()
    made_nothing = False
    if payload.profile.train and not blocking:
        run = result.run_of_work(box_state, payload.source.commit)
    # The step `train` also succeeds if this work ran before another one.
    begins = bool(setup and run and (executor.started_run or run.state == "running"))
    if run and (run.repo_key, run.name) in over:
        begins = False
    if run and (begins or (run.failed and run.state == "finished")):
        if begins:
            reporter.say(follow.waits_for_output(run.name))
        beginning = box.ask(partial(follow.watch_beginning, run=run))
        run = replace(run, state=beginning.state, rc=beginning.rc)
        lines = tuple(map(reporter.redact, beginning.lines))
        if made_nothing := beginning.made_nothing:
            reporter.warn(f"{run.name} {MADE_NOTHING}")
    if box_state.lease and box.known.lease:
        held = {**box.known.lease, "held": box_state.lease.held}
        box.save(replace(box.known, lease=held))
    return result.SetupResult(
        box=box.name,
        setup=setup,
        alias=update_alias(box.known, reporter, is_noisy=box_state.is_noisy),
        commit=payload.source.commit,
        snapshot=payload.source.snapshot,
        changes=payload.changes,
        repo_dir=result.repo_dir(box_state, payload.source.name),
        run=run,
        first_lines=lines if run and begins else None,
        last_lines=() if begins else lines,
        waits_for=blocking,
        differs=tuple(result.differences(box_state)),
        seconds=time.monotonic() - began,
        own_folder=executor.own_folder,
        login=box,
        profile=payload.profile,
        box_state=box_state,
        made_nothing=made_nothing,
    )


@dataclass(frozen=True)
class SetupPlan(Document):
    """What a setup would do on a box, and why."""

    KEYS = "box, commit, snapshot, changes, steps=rows, reused?"

    box: str
    commit: str
    snapshot: str
    changes: ChangeCount
    rows: list[PlanRow]
    reused: str | None  # a sentence about the image's packages that its environment reuses
    loaded: LoadedProfile


def plan_setup(request: SetupRequest, reporter: Reporter) -> SetupPlan:
    """Ask the box for a plan, by the script if the probe brought none; nothing is stored there."""
    context = _look(replace(request, renames=False), reporter, CancelToken())
    try:
        box_state = _planned(context)
        if box_state.edited:
            reporter.warn(edited_there(box_state.edited, context.box.name))
        if context.box.state.working:
            does = "this plan has what that is still doing"
            reporter.warn(f"{context.box.name}: {context.box.state.holder}: {does}")
    finally:
        context.box.close()
    payload, source = context.payload, context.payload.source
    reused = box_state.reused
    return SetupPlan(
        context.box.name,
        source.commit,
        source.snapshot,
        payload.changes,
        plan_rows(payload.steps, box_state.plan),
        explain("image-reused", reused).what if reused else None,
        context.loaded,
    )


def _planned(context: SetupContext) -> BoxState:
    """Return the box's state, including a plan."""
    box_state = context.box_state()
    if box_state.plan and not context.request.restart:
        return box_state
    import gzip  # late: the probe brought a plan, as a rule

    payload = context.payload
    script = gzip.compress(payload.script.encode())
    program = b"" if box_state.has_program(payload.program.digest) else payload.program.packed
    query = build_query(
        "plan",
        script_bytes=len(script),
        program_bytes=len(program),
        words="restart" if context.request.restart else "",
    )
    command = shell_command(query, BASH)
    return parse_probe(run_script(context.box.wire, command, stdin=script + program, timeout=120))


@dataclass(frozen=True)
class Verification:
    verdict: Verdict
    where: str  # the box's address, as shown to the user
    provider: str
    error: ReturnBoxError | None  # the error to raise if the box should be returned


def verify_box(request: SetupRequest, reporter: Reporter) -> Verification:
    """Check a box now. Raises the errors of `bootstrap.errors`, except for a bad verdict."""
    from bootstrap.setup.context import get_context
    from bootstrap.setup.executor import SetupExecutor
    from bootstrap.setup.result import fetch_verdict

    context = get_context(
        replace(request, committed_only=True, renames=False), reporter, with_source=False
    )
    smoke = any(step.name == "smoke" for step in context.payload.steps)
    context.request = replace(context.request, only="gpu,smoke" if smoke else "gpu")
    box, profile, error = context.box, context.payload.profile, None
    try:
        try:
            SetupExecutor(context).run(context.box_state())
        except ReturnBoxError as returned:
            error, verdict = returned, cast("Verdict", returned.verdict)
        else:
            box.save(replace(box.known, workdir=box.workdir, profile=profile.name))
            verdict = fetch_verdict(box, profile.provider.advice)
        return Verification(verdict, box.wire.label, profile.provider.name, error)
    finally:
        context.box.close()
