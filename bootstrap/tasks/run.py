"""run: start a new run of the local state, whatever ran before."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bootstrap.errors import UsageError, WhichBoxError
from bootstrap.tasks.command import BOX, Call, Option, command
from bootstrap.tasks.renting import OF_RENTING, rent_shown, up_request
from bootstrap.tasks.runs import given_command
from bootstrap.tasks.setup import COMMITTED, OVERWRITE, WAIT

if TYPE_CHECKING:
    from bootstrap.profile.values import Rule
    from bootstrap.setup.request import RunOptions, SetupRequest
    from bootstrap.sync.new_run import StartedRun


@command(
    *BOX,
    Option("session", "The name of its session, and of the run; default: the profile's."),
    Option("gpus", "The GPUs that it gets, as in 0,1; default: all."),
    Option("after", "Wait in the box's queue until that run has ended with 0."),
    Option("after_any", "The same, however that run ends."),
    Option("queue", "Wait in the box's queue until no other run has its GPUs.", False),
    Option("resume", "Instead, resume that run, which ended early, in its tree."),
    Option("beside", "In a tree of its own, without the results of other runs.", False),
    OVERWRITE,
    Option("up", "Where this repository has no box: rent one as `up` does, and run there.", False),
    *OF_RENTING,
    COMMITTED,
    WAIT,
    interrupted="Whether it began: boxstrap status{host}; what is rented: boxstrap boxes --all",
)
def run(call: Call) -> None:
    """Start a new run of your current files, whatever ran before; its command comes after `--`.

    Example: boxstrap run --host my-box --gpus 0 -- python train.py --lr 3e-4
    """
    words = given_command(sys.argv)
    if call.given["resume"]:
        _resume(call, words)
        return
    wish = _wish(call, words)
    from bootstrap.sync.new_run import start_run

    def show(lines: Sequence[str]) -> None:
        call.screen.result({}, "\n".join(f"  {line}" for line in lines))

    def start(request: SetupRequest) -> StartedRun:
        return start_run(request, call.screen, show)

    request = dataclasses.replace(call.request(), run=wish)
    rents = _rents(call, request)
    begun = rent_shown(call, up_request(call, request), start) if rents else start(request)
    # Late, so that the first lines don't wait for it.
    from bootstrap.boxes.at_home import note_seen
    from bootstrap.tasks.setup_report import after_run

    note_seen(begun.login.known, [begun.run], call.screen.redact)
    call.screen.result(begun.as_dict(), f"\n{after_run(begun)}")
    begun.raise_for_status()


def _rents(call: Call, request: SetupRequest) -> bool:
    """Whether to rent first: with --up, where the repository has no box. Raises UsageError."""
    if not call.given["up"]:
        given = next((one.name for one in OF_RENTING if call.given[one.name]), None)
        if given:
            raise UsageError(f"{_typed(given)} is about a box that is rented first: add --up.")
        return False
    if request.host:
        raise UsageError("--up rents where no box is named: leave out --host, or --up.")
    from bootstrap.link.registry import only_box
    from bootstrap.repo.local import current

    try:
        only_box(current(request.place)[0])
    except WhichBoxError as error:
        return not error.has_several
    return False


def _resume(call: Call, words: Sequence[str]) -> None:
    from bootstrap.sync.new_run import resume_run
    from bootstrap.tasks.setup_report import program_name

    given = [name for name in _OF_A_NEW_RUN if call.given[name]]
    if words or given:
        other = _typed(given[0]) if given else "a command"
        raise UsageError(f"--resume uses the settings of that run: {other} is only for a new run.")
    resumed = resume_run(
        call.options(),
        call.screen,
        call.given["resume"],
        call.request().wait_s,
        overwrite=call.given["overwrite_results"],
    )
    lines = [f"  {call.screen.safe_text(line)}" for line in resumed.first_lines]
    follow = f"{program_name(sys.argv[0])} logs -f --host {resumed.box} --run {resumed.run.name}"
    text = f"{resumed.run.name} goes on from {resumed.resumes}; to follow it: {follow}"
    call.screen.result(resumed.as_dict(), "\n".join([*lines, text]))
    resumed.raise_for_status()


_QUEUES = {"after": "after:{}", "after_any": "after-any:{}", "queue": "gpus"}
"""What is sent to the box for each option."""
_OF_A_NEW_RUN = ("session", "gpus", "beside", "up", "committed_only", *_QUEUES)


def _typed(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _queue(call: Call) -> str:
    """Return what the run waits for; "" for nothing. Raises UsageError."""
    from bootstrap.profile.values import RUN

    given = {name: call.given[name] for name in _QUEUES}
    chosen = [name for name, value in given.items() if value]
    if len(chosen) > 1:
        raise UsageError(f"{_typed(chosen[0])} or {_typed(chosen[1])}: a run waits for one thing.")
    for name in chosen:
        word = "" if name == "queue" else _checked(_typed(name), str(given[name]), RUN)
        return _QUEUES[name].format(word)
    return ""


def _wish(call: Call, words: Sequence[str]) -> RunOptions:
    from bootstrap.profile.values import COMMAND, GPUS, SESSION
    from bootstrap.setup.request import RunOptions

    # A single word is a shell command line, like train.command; several words are quoted each.
    text = words[0] if len(words) == 1 else shlex.join(words)
    if words and not text.strip():
        raise UsageError("the command after -- is empty.")
    given = {
        "the command": (text, COMMAND),
        "--session": (call.given["session"] or "", SESSION),
        "--gpus": (call.given["gpus"] or "", GPUS),
    }
    text, session, gpus = (_checked(name, *each) for name, each in given.items())
    overwrite = call.given["overwrite_results"]
    return RunOptions(text, session, gpus, _queue(call), call.given["beside"], overwrite)


def _checked(name: str, text: str, rule: Rule) -> str:
    try:
        return rule(text) if text else ""
    except ValueError as error:
        raise UsageError(f"{name}: {error}.") from None
