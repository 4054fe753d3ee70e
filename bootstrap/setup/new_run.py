"""`run`: send the local state to a box and start a new run of it, mostly in one exchange.

A run that ended early is resumed as a new run in the same tree.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bootstrap.boxes import follow
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.run import MADE_NOTHING, STOPPED, Run, is_name
from bootstrap.boxes.run_details import results_in_the_way
from bootstrap.errors import BoxstrapError, NotSafeError, StepFailedError, UnreachableError
from bootstrap.link.cancel import CancelToken
from bootstrap.link.exchange import answer_rows, answer_time, stream_script
from bootstrap.link.query import ask
from bootstrap.link.reconnecting import Backoff
from bootstrap.link.wire import LinkLost, NoAnswer
from bootstrap.setup import sync as send
from bootstrap.setup.request import RunOptions, SetupRequest
from bootstrap.setup.sequence import execute, prepare, refuse_alone
from bootstrap.ui.screen import Screen
from bootstrap.value import Document, dataclass, replace

if TYPE_CHECKING:  # the login to the box begins before these are imported
    from bootstrap.profile.schema import Profile
    from bootstrap.repo.snapshot_store import ChangeCount
    from bootstrap.setup.context import SetupContext

_NOTHING_SENT = "none"
Show = Callable[[Sequence[str]], None]


@dataclass(frozen=True)
class StartedRun(Document):
    """A run that was started now, or earlier under the same id."""

    KEYS = (
        "box, run, id=wish.id, gpus=wish.gpus or None, commit=run.commit, "
        "snapshot=run.snapshot, changes, tree, environment, first_lines, seconds:3"
    )

    box: str
    run: Run
    wish: RunOptions
    tree: str  # the folder on the box that it runs in
    environment: str
    first_lines: tuple[str, ...]  # its first output, or its last if it failed immediately
    changes: ChangeCount  # how many files differ from its commit
    seconds: float
    profile: Profile
    login: BoxLogin
    made_nothing: bool  # whether it is over with 0, without a word in its log and without results

    def raise_for_status(self) -> None:
        """Raise TrainingFailedError if it failed immediately."""
        follow.raise_if_failed(self.run, self.box, self.first_lines)


def start_run(request: SetupRequest, screen: Screen, show: Show) -> StartedRun:
    """Start a run of the local state, once per id of `request.run`, whatever ran before.

    `show` gets its first lines as soon as there are some, or its last if it fails immediately.
    Raises as `run_setup` and as `sync`: NotSafeError if something made on the box is in the
    way; UnreachableError if it is unknown whether the run was started.
    """
    assert request.run is not None  # noqa: S101 - callers always set it
    context = prepare(request, screen, CancelToken())
    try:
        refuse_alone(context.payload.profile)
        return begin_run(context, screen, show)
    finally:
        context.box.close()


def begin_run(
    context: SetupContext, screen: Screen, show: Show, *, waits: bool = True
) -> StartedRun:
    """Start the run that was prepared; `waits`: for its first output. Raises as `start_run`."""
    began, request = time.monotonic(), context.request
    assert request.run is not None  # noqa: S101 - callers always set it
    wish = request.run.of(context.payload.profile)
    if "/" in wish.queue:
        wish = _run_before(context, wish)
        context.request = replace(request, run=wish)
    wait_s = follow.FIRST_OUTPUT_S if waits else 0
    return _Beginning(context, wish, screen, show, wait_s).begin(began)


def _run_before(context: SetupContext, wish: RunOptions) -> RunOptions:
    """Name the run to wait for as its box does. Raises UsageError, which names those there."""
    kind, _, name = wish.queue.partition(":")
    box, state = context.box, context.box_state()
    box.own = state.repo_key or box.repo_key
    run = box.runs(name)[0]
    return replace(wish, queue=f"{kind}:{run.name if run.repo_key == box.own else run.path}")


class _Beginning:
    """The start of one run, from the request to its first lines, across lost links."""

    def __init__(
        self, context: SetupContext, wish: RunOptions, screen: Screen, show: Show, wait_s: int
    ) -> None:
        self._context, self._wait_s = context, wait_s
        self._wish = wish
        self._screen = screen
        self._backoff = Backoff(cancel=context.box.cancel)
        self._output: follow.FirstOutput | None = None
        self._show = show
        self._shown: tuple[str, ...] = ()  # the first lines that were shown
        self._mark = secrets.token_hex(16)
        """Ends the first output on the wire, which may hold any byte."""

    def begin(self, began: float) -> StartedRun:
        """Start it, with a setup if one exchange is not enough."""
        try:
            answer = self._at_once()
            if answer is None or answer.problem == "setup":
                self._refuse_unknown()
                execute(self._context)
                answer = self._across_links(self._ask)
        except LinkLost as lost:
            raise self._unknown(lost) from None
        return self._result(answer, began)

    def _refuse_unknown(self) -> None:
        """Raise UsageError, which names those that are there, if the run to wait for is not."""
        if ":" in self._wish.queue and "/" not in self._wish.queue:
            _run_before(self._context, self._wish)

    def _at_once(self) -> send.SyncAnswer | None:
        """None for a box that fetches its files itself or was never set up: it needs a setup."""
        payload, box = self._context.payload, self._context.box
        if payload.here is None or payload.snapshot is None or not box.known.workdir:
            return None
        state = send.LocalState(payload.here, payload.snapshot, self._context.request.once.share)
        base = send.base_of(box, state)
        return self._across_links(lambda: state.send_by(self._ask, base))

    def _across_links(self, ask: Callable[[], send.SyncAnswer]) -> send.SyncAnswer:
        while True:
            try:
                return ask()
            except LinkLost as lost:  # safe to repeat: the box knows the run's id
                self._backoff.lost(lost, news=0)
                try:
                    self._context.box.link.reconnect(lost)
                except UnreachableError as error:
                    raise self._unknown(error) from None

    def _unknown(self, error: UnreachableError) -> UnreachableError:
        return UnreachableError(
            f"{error.what} It is unknown whether the run was started.",
            where=error.where,
            hint="Check before you start it again: boxstrap status --host "
            + self._context.box.name,
        )

    def _ask(
        self, sent: send.SyncState | None = None, objects: send.EarlyObjects | None = None
    ) -> send.SyncAnswer:
        """Make one exchange. A started run is reported immediately, then its first lines."""
        wire = self._context.box.wire
        values = self._values() if sent else {**self._values(), "state": _NOTHING_SENT}
        waits = partial(send.say_waiting, self._screen, self._context.request)
        with send.exchange(wire, values, sent, objects, "run", waits=waits) as (stream, answer):
            if "run" in answer.facts and self._shows_at_once():
                self._say_started(answer)
                self._output = self._shown_output(stream)
            return answer

    def _values(self) -> dict[str, object]:
        from bootstrap.setup.script import OF_ONE_RUN

        payload, request = self._context.payload, self._context.request
        profile, wish = payload.profile, self._wish
        variables = dict(wish.variables)
        return {
            **send.tree_values(payload.source, request.wait_s),
            "workdir": self._context.box.workdir,
            "format": payload.here.object_format if payload.here else "",
            "script": payload.program_id,
            "of_one_run": OF_ONE_RUN,
            "id": wish.id,
            "words": wish.words(profile),
            "command": wish.command,
            "session": wish.session,
            "beside": "yes" if wish.beside else "",
            "cell": variables.get("BOXSTRAP_CELL", ""),
            "keeps": not (wish.overwrite or wish.queue),
            "show_s": str(self._wait_s) if self._shows_at_once() else "",
            "mark": self._mark,
        }

    def _shows_at_once(self) -> bool:
        """Whether this machine can redact the run's output; if not, the box has to."""
        box = self._context.box
        return all(name in box.redactor.secrets for name in box.known.secrets or ())

    def _shown_output(self, stream: send.SyncStream) -> follow.FirstOutput:
        """Show its first lines as they come; return them, or the last if it failed immediately."""
        said = stream.rest(f"\n{self._mark}\n".encode())
        # Without an incomplete last line: it may hold a part of a secret, which isn't redacted.
        early = follow.first_output(b"running\n" + said[: said.rfind(b"\n") + 1]).lines
        lines = tuple(map(self._screen.redact, early))
        if lines and not self._shown:
            self._shown = lines
            self._show(lines)
        return follow.first_output(stream.rest(b"\n") + b"\n" + stream.rest())

    def _say_started(self, answer: send.SyncAnswer) -> None:
        self._screen.begun_run = name = answer.facts["run"].rpartition("/")[2]
        if self._wait_s and answer.facts.get("state") != "queued":
            self._screen.say(follow.waits_for_output(name))

    def _result(self, answer: send.SyncAnswer, began: float) -> StartedRun:
        context, name = self._context, self._context.box.name
        answer.warn(context.box)
        if "run" not in answer.facts:
            if answer.detail == "no-run-before":
                self._refuse_unknown()
            if answer.problem:
                raise send.refusal(answer, context.box.label, name)
            raise BoxstrapError(
                "the run was not started, and the box does not say why.",
                where=context.box.label,
                hint=f"See what it says: boxstrap status --host {name}",
            )
        self._remember()
        run = self._run_of(answer)
        output = self._output or self._watched(run, answer)
        lines = tuple(map(self._screen.redact, output.lines))
        fresh = follow.not_shown(lines, self._shown)
        if fresh and (output.rc or not self._shown):
            self._show(fresh)
        if output.made_nothing and self._wait_s:
            self._screen.warn(f"{run.name} {MADE_NOTHING}")
        unmet = run.queue if run.queue.startswith("after ") and output.rc == STOPPED else ""
        return StartedRun(
            box=name,
            run=replace(run, state=output.state, rc=output.rc, ended=unmet),
            wish=self._wish,
            tree=answer.facts.get("dir", ""),
            environment=answer.facts.get("venv", ""),
            first_lines=lines,
            changes=context.payload.changes,
            seconds=time.monotonic() - began,
            profile=context.payload.profile,
            login=context.box,
            made_nothing=output.made_nothing,
        )

    def _run_of(self, answer: send.SyncAnswer) -> Run:
        key, _, name = answer.facts["run"].rpartition("/")
        source = self._context.payload.source
        started = answer_time(answer.facts.get("started", ""))
        return Run(
            repo_key=key,
            name=name,
            state="running",
            rc=None,
            started=started,
            begun=0 if self._wish.queue else started,
            commit=source.commit,
            work="",
            session=self._wish.session,
            written=0,
            log_bytes=0,
            command=self._wish.command,
            snapshot=source.snapshot,
            queue=self._wish.queue.replace(":", " "),
            attended=True,
        )

    def _watched(self, run: Run, answer: send.SyncAnswer) -> follow.FirstOutput:
        """Wait for its first lines; the box redacts secrets whose values are not here."""
        box = self._context.box
        self._say_started(answer)
        self._context.box_state()
        return box.ask(partial(follow.watch_beginning, run=run, seconds=self._wait_s))

    def _remember(self) -> None:
        from bootstrap.repo.snapshot import remember_snapshot
        from bootstrap.setup.context import stood_in

        payload, box = self._context.payload, self._context.box
        source = payload.source
        box.note_sent(
            payload.here,
            source.key,
            box.workdir,
            stood_in=stood_in(self._context.request, payload),
            root=source.root,
            snapshot=source.snapshot,
        )
        if payload.here is not None and payload.snapshot is not None:
            remember_snapshot(payload.here, payload.snapshot)


_SET_UP = "Set the box up again: boxstrap setup --host {box}"
_WHY = {
    "alive": ("it runs, or waits for its turn", "Follow it: boxstrap logs -f --host {box}"),
    "over": ("it finished with exit code 0: there is nothing to resume", "A new run: boxstrap run"),
    "unknown": (
        "its profile had no command to resume it",
        "Name one in the profile, as train.resume, for the next run.",
    ),
    "nodes": (
        "it is one of several nodes, which go on together",
        "Begin a run on all with the command that goes on: boxstrap run --host … --host … -- "
        "COMMAND",
    ),
    "left": ("processes of it live on", "End them: boxstrap stop --run {run}"),
    "held": ("another run has its tree", "Wait for that, or stop it: boxstrap status --host {box}"),
    "changed": (
        "the files of its tree have changed",
        "Begin a run of those, with the command that goes on: boxstrap run -- COMMAND",
    ),
    "overwritten": (
        "later runs overwrote its results, and no copy of them is on the box",
        "What came home of it goes on on another box: boxstrap run --resume {box}/{run} --host …",
    ),
    "busy": (
        "another setup is at work on this box",
        "See what it does: boxstrap status --host {box}",
    ),
}
"""The box's word for why it starts nothing -> reason and what to do."""


@dataclass(frozen=True)
class ResumedRun(Document):
    box: str
    run: Run
    resumes: str
    first_lines: tuple[str, ...]

    def raise_for_status(self) -> None:
        """Raise TrainingFailedError if it failed immediately."""
        follow.raise_if_failed(self.run, self.box, self.first_lines)


def resume_run(request: SetupRequest, screen: Screen, name: str) -> ResumedRun:
    """Resume the run of that name, once even if the link is lost. Raises UsageError if there is
    none, NotSafeError if it can't be resumed, StepFailedError if the box could not start it."""
    with BoxLogin.open(request, screen) as box:
        old = box.runs(name)[0]
        run = _begun(box, old, request.wait_s, overwrite=request.overwrite)
        screen.begun_run = run.name
        if old.repo_key == box.own:
            _name_edits(request, screen, old)
        screen.say(follow.waits_for_output(run.name))
        output = box.ask(partial(follow.watch_beginning, run=run))
        return ResumedRun(
            box.name,
            replace(run, state=output.state, rc=output.rc),
            old.name,
            tuple(map(screen.redact, output.lines)),
        )


def _name_edits(request: SetupRequest, screen: Screen, run: Run) -> None:
    """Name the files here that differ from those of the run, as far as these are known here."""
    from bootstrap.profile.consent import load_profile
    from bootstrap.repo.git import GitError

    with contextlib.suppress(BoxstrapError, GitError):  # it goes on all the same
        profile = load_profile(request, kinds=()).profile  # uses nothing that needs consent
        now = send.read_local_state(request, profile).snapshot
        if edits := send.file_changes(now.folders, [run.snapshot or run.commit], now.id):
            screen.warn(f"it has the files that {run.name} began with, not your edits: {edits}")


def _ask(box: BoxLogin, query: str) -> dict[str, str]:
    """Return the box's complete answer. Raises LinkLost, NoAnswer."""
    said = dict(answer_rows(stream_script(box.wire, query).whole()))
    if "over" not in said:
        if not box.wire.alive():
            raise LinkLost(box.label)
        raise NoAnswer(
            "it did not report whether the run was started.",
            where=box.label,
            hint=f"Look what it does: boxstrap status --host {box.name}",
        )
    return said


def _begun(box: BoxLogin, old: Run, wait_s: int, *, overwrite: bool = False) -> Run:
    asked = {"key": old.repo_key, "name": old.name, "id": secrets.token_hex(8)}
    more = {"wait_s": wait_s, "overwrite": overwrite}
    query = ask("runs.resume", {**asked, **more}, workdir=box.workdir)
    said = box.ask(partial(_ask, query=query))
    where = f"{box.label}, {old.name}"
    if said.get("refused") == "results":
        raise results_in_the_way([said.get("log", "")], where, box.name)
    if why := said.get("refused"):
        what, hint = _WHY.get(why, ("the box does not say why", _SET_UP))
        last = said.get("last", "")
        if not is_name(last):
            last = old.name
        if last != old.name:
            where = f"{box.label}, {last}, which went on from {old.name}"
        raise NotSafeError(
            f"it can't go on: {what}.", where=where, hint=hint.format(run=last, box=box.name)
        )
    if not is_name(said.get("run", "")):
        raise StepFailedError(
            f"it was not started: {said.get('log', 'the box does not say why')}.",
            where=where,
            hint=f"See what the box does: boxstrap status --host {box.name}",
        )
    started = answer_time(said.get("started", ""))
    return replace(
        old,
        name=said["run"],
        state="running",
        rc=None,
        started=started,
        begun=started,
        command=said.get("command", ""),
        ended="",
        can_resume=False,
    )
