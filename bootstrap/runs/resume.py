"""Resume a run that ended early, as a new run in the same tree."""

from __future__ import annotations

import dataclasses
import secrets as random
from dataclasses import dataclass
from functools import partial

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import NotSafeError, StepFailedError
from bootstrap.link.exchange import BASH, answer_number, answer_rows, stream_script
from bootstrap.link.target import BoxOptions
from bootstrap.link.wire import LinkLost, NoAnswer
from bootstrap.protocol.follow import raise_if_failed, waits_for_output, watch_beginning
from bootstrap.protocol.query import build_query
from bootstrap.protocol.run import Run, is_name
from bootstrap.protocol.run_details import results_in_the_way
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


def resume_run(
    options: BoxOptions, screen: Screen, name: str, wait_s: int, *, overwrite: bool = False
) -> ResumedRun:
    """Resume the run of that name, only once even if the link is lost.

    Raises UsageError if there is no such run, NotSafeError if it can't be resumed, and
    StepFailedError if the box could not start it.
    """
    with BoxLogin.open(options, screen) as box:
        old = box.runs(name)[0]
        run = _begun(box, old, wait_s, overwrite=overwrite)
        screen.say(waits_for_output(run.name))
        output = box.ask(partial(watch_beginning, run=run))
        return ResumedRun(
            box.name,
            dataclasses.replace(run, state=output.state, rc=output.rc),
            old.name,
            tuple(map(screen.redact, output.lines)),
        )


def _ask(box: BoxLogin, query: str) -> dict[str, str]:
    """Return the box's complete answer. Raises LinkLost, NoAnswer."""
    said = dict(answer_rows(stream_script(box.wire, query, BASH).whole()))
    if "over" not in said:
        if not box.wire.alive():
            raise LinkLost(box.label)
        raise NoAnswer(
            "it did not report whether the run was started.",
            where=box.label,
            hint="Look what it does: boxstrap status",
        )
    return said


def _begun(box: BoxLogin, old: Run, wait_s: int, *, overwrite: bool = False) -> Run:
    query = build_query(
        "resume",
        workdir=box.workdir,
        repo_key=old.repo_key,
        name=old.name,
        run_id=random.token_hex(8),
        wait_s=wait_s,
        overwrite="yes" if overwrite else "",
    )
    said = box.ask(partial(_ask, query=query))
    where = f"{box.label}, {old.name}"
    if said.get("refused") == "results":
        raise results_in_the_way([said.get("log", "")], where, box.name)
    if why := said.get("refused"):
        what, hint = _WHY.get(why, ("the box does not say why", _SET_UP))
        raise NotSafeError(f"it can't go on: {what}.", where=where, hint=hint)
    if not is_name(said.get("run", "")):
        raise StepFailedError(
            f"it was not started: {said.get('log', 'the box does not say why')}.",
            where=where,
            hint=f"See what the box does: boxstrap status --host {box.name}",
        )
    started = answer_number(said.get("started", "")) or 0
    return dataclasses.replace(
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
