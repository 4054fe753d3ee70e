"""Resume a run that ended early, as a new run in the same tree."""

from __future__ import annotations

import dataclasses
import secrets as random
from dataclasses import dataclass
from functools import partial

from bootstrap.errors import NotSafeError, StepFailedError
from bootstrap.link.answers import number, rows
from bootstrap.link.errors import LinkLost, NoAnswer
from bootstrap.link.exchange import BASH, stream_answer
from bootstrap.link.handle import BoxOptions
from bootstrap.link.wire import Wire
from bootstrap.protocol.first_output import raise_if_failed, waits_for_output, watch_beginning
from bootstrap.protocol.query import build_query
from bootstrap.protocol.run import Run, is_name
from bootstrap.runs.connection import BoxConnection, connect
from bootstrap.ui.screen import Screen

_SET_UP = "Set the box up again: boxstrap setup"
_WHY = {
    "alive": ("it runs, or waits for its turn", "Follow it: boxstrap logs -f"),
    "over": ("it finished with exit code 0: there is nothing to resume", "A new run: boxstrap run"),
    "unknown": (
        "its profile had no command to resume it",
        "Name one in the profile, as train.resume, for the next run.",
    ),
    "held": ("another run has its tree", "Wait for that, or stop it: boxstrap status"),
    "changed": (
        "the files of its tree have changed",
        "Begin a run of those, with the command that goes on: boxstrap run -- COMMAND",
    ),
    "busy": ("another setup is at work on this box", "See what it does: boxstrap status"),
    "script": ("the box was set up by an earlier version", _SET_UP),
}
"""The box's word for why it starts nothing -> reason and what to do."""


@dataclass(frozen=True)
class ResumedRun:
    """The new run, and the name of the one that it resumes."""

    box: str
    run: Run
    resumes: str
    first_lines: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """As `--json` prints it."""
        return {
            "box": self.box,
            "run": self.run.as_dict(),
            "resumes": self.resumes,
            "first_lines": list(self.first_lines),
        }

    def raise_for_status(self) -> None:
        """Raise TrainingFailedError if it failed immediately."""
        raise_if_failed(self.run, self.box)


def resume_run(options: BoxOptions, screen: Screen, name: str, wait_s: int) -> ResumedRun:
    """Resume the run of that name, only once even if the link is lost.

    Raises UsageError if there is no such run, NotSafeError if it can't be resumed, and
    StepFailedError if the box could not start it.
    """
    with connect(options, screen) as connection:
        old = connection.runs(name)[0]
        run = _begun(connection, old, wait_s)
        screen.say(waits_for_output(run.name))
        watch = partial(
            watch_beginning,
            run=run,
            workdir=connection.workdir,
            redact=connection.redacted_by_box,
        )
        output = connection.link.ask(watch)
        return ResumedRun(
            connection.box.known.name,
            dataclasses.replace(run, state=output.state, rc=output.rc),
            old.name,
            tuple(map(screen.redact, output.lines)),
        )


def _ask(wire: Wire, query: str) -> dict[str, str]:
    """Return the box's complete answer. Raises LinkLost, NoAnswer."""
    said = dict(rows(stream_answer(wire, query, BASH).whole()))
    if "over" not in said:
        if not wire.alive():
            raise LinkLost(wire.label)
        raise NoAnswer(
            "it did not report whether the run was started.",
            where=wire.label,
            hint="Look what it does: boxstrap status",
        )
    return said


def _begun(connection: BoxConnection, old: Run, wait_s: int) -> Run:
    query = build_query(
        "resume",
        workdir=connection.workdir,
        repo_key=old.repo_key,
        name=old.name,
        run_id=random.token_hex(8),
        wait_s=wait_s,
    )
    said = connection.link.ask(partial(_ask, query=query))
    where = f"{connection.link.label}, {old.name}"
    if why := said.get("refused"):
        what, hint = _WHY.get(why, ("the box does not say why", _SET_UP))
        raise NotSafeError(f"it can't go on: {what}.", where=where, hint=hint)
    if not is_name(said.get("run", "")):
        raise StepFailedError(
            f"it was not started: {said.get('log', 'the box does not say why')}.",
            where=where,
            hint=f"See what the box does: boxstrap status --host {connection.box.known.name}",
        )
    return dataclasses.replace(
        old,
        name=said["run"],
        state="running",
        rc=None,
        started=number(said.get("started", "")) or 0,
        command=said.get("command", ""),
        ended="",
        can_resume=False,
    )
