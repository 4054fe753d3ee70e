"""`stop`: end runs, or the setup at work."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import StepFailedError, UsageError
from bootstrap.link.exchange import answer_rows
from bootstrap.link.target import BoxOptions
from bootstrap.profile.values import LONGEST_GRACE_S
from bootstrap.protocol.run import Run, qualified, repository_names
from bootstrap.ui.layout import still_billing
from bootstrap.ui.screen import Screen

_PATIENCE_S = 60
"""Seconds that the box may take in addition to the run's own grace time."""
_MOST_NAMED = 20
"""Processes that are listed; an untrusted box may send any number."""


StopAnswer = tuple[bool, list[list[str]]]
"""Whether it was ended; and for each process that is still alive: run, pid, user, program."""


def stop_run(
    options: BoxOptions, screen: Screen, *, run: str | None, every: bool, setup: bool
) -> None:
    """Stop one run and wait for its end. It is no error if nothing is running.

    With `every`, stop all runs that are live or wait for their turn; with `setup`, the setup at
    work instead.
    Raises UsageError, and StepFailedError with the list of processes that could not be ended.
    """
    if setup and (run or every):
        raise UsageError("a run or the setup: not both.")
    with BoxLogin.open(options, screen) as box:
        meant = [] if setup else box.runs(run, every=every)
        living = [one for one in meant if one.state == "running" or one.left]
        queued = [one for one in meant if one.state == "queued"]
        if setup:
            did, left = _stop(box, "setup")
            holder, ended = box.state.holder, list[Run]()
            stopped = [f"setup ({holder})" if holder else "setup"] if did else []
        else:
            asked = [*queued, *living] if every else (living or queued or meant)[:1]
            answers = end_runs(box, screen, asked)
            left = [row for _, (_, others) in answers for row in others]
            ended = [one for one, (did, _) in answers if did]
            stopped = [f"{one.name} of {box.repository(one)}" for one in ended]
        text = f"stopped: {', '.join(stopped)}" if stopped else _nothing(box, meant, run)
        if not box.is_local:
            known = box.known
            text += f"\n{still_billing(f'boxstrap down --host {known.name}', known.console)}"
        screen.result(
            {
                "box": box.name,
                "stopped": [one.name for one in ended] or (["setup"] if stopped else []),
                "runs": [{"name": one.name, "repository": box.repository(one)} for one in ended],
                "left": left,
            },
            text,
        )
        if ended:
            box.note_runs_now()
    if left:
        named = (
            f"\n  {one}: process {pid} ({program}, of {user})" for one, pid, user, program in left
        )
        raise StepFailedError(
            f"could not be stopped, still running:{''.join(islice(named, _MOST_NAMED))}",
            where=box.name,
            hint="It is another user's, or stuck in a driver: look at it there (ps -fp NUMBER).",
        )


def end_runs(box: BoxLogin, screen: Screen, runs: Sequence[Run]) -> list[tuple[Run, StopAnswer]]:
    """Stop these runs, and return the answer for each. Raises as `end_run`."""
    # Queued runs first: else one of them would start when another run ends.
    asked = sorted(runs, key=lambda run: run.state != "queued")
    if running := ", ".join(one.name for one in asked if one.state == "running"):
        screen.note(
            "stop", f"{running}: asked to end; if it hasn't after its `train.grace`, it is killed"
        )
    return [(one, end_run(box, one)) for one in asked]


def end_run(box: BoxLogin, run: Run) -> StopAnswer:
    """Stop this run, and wait until it has ended. Raises LinkLost, NoAnswer."""
    return _stop(box, run.name, run.repo_key)


def _stop(box: BoxLogin, what: str, repo_key: str = "") -> StopAnswer:
    """Stop the run of that name, or the setup at work."""
    patience = _PATIENCE_S + LONGEST_GRACE_S
    return what_ended(box.query("stop", timeout=patience, what=what, repo_key=repo_key))


def what_ended(answer: bytes) -> StopAnswer:
    """Read the box's answer."""
    said = [(word, value.split("\t")) for word, value in answer_rows(answer)]
    left = [row for word, row in said if word == "left" and len(row) == 4]
    return any(word == "stopped" for word, _ in said), left


def _nothing(box: BoxLogin, meant: list[Run], name: str | None) -> str:
    """Say that nothing selected was running, and which other runs are live on the box."""
    runs = box.state.runs
    names = repository_names({one.repo_key for one in runs})
    others = [qualified(one, names) for one in runs if one.state == "running" and meant]
    if not others:
        return "nothing was running"
    whose = names[meant[0].repo_key]
    what = f"{qualified(meant[0], names)} was not" if name else f"nothing of {whose} was"
    return f"{what} running; still running: {', '.join(others)} (see --run, --all)"
