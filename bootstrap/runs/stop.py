"""`stop`: end runs, or the setup at work."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from bootstrap.errors import StepFailedError, UsageError
from bootstrap.link.answers import rows
from bootstrap.link.exchange import exchange
from bootstrap.link.handle import BoxOptions
from bootstrap.profile.values import LONGEST_GRACE_S
from bootstrap.protocol.query import build_query
from bootstrap.protocol.run import Run
from bootstrap.runs.connection import BoxConnection, connect
from bootstrap.runs.selection import qualified, repository_names
from bootstrap.ui.next_commands import still_billing
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
    with connect(options, screen) as connection:
        meant = [] if setup else connection.runs(run, every=every)
        living = [one for one in meant if one.state == "running" or one.left]
        queued = [one for one in meant if one.state == "queued"]
        if setup:
            did, left = _stop(connection, "setup")
            holder, ended = connection.box_state.holder, list[Run]()
            stopped = [f"setup ({holder})" if holder else "setup"] if did else []
        else:
            asked = [*queued, *living] if every else (living or queued or meant)[:1]
            answers = end_runs(connection, screen, asked)
            left = [row for _, (_, others) in answers for row in others]
            ended = [one for one, (did, _) in answers if did]
            stopped = [f"{one.name} of {connection.repository(one)}" for one in ended]
        text = f"stopped: {', '.join(stopped)}" if stopped else _nothing(connection, meant, run)
        if not connection.box.is_local:
            known = connection.box.known
            text += f"\n{still_billing(f'boxstrap down --host {known.name}', known.console)}"
        screen.result(
            {
                "box": connection.box.known.name,
                "stopped": [one.name for one in ended] or (["setup"] if stopped else []),
                "runs": [
                    {"name": one.name, "repository": connection.repository(one)} for one in ended
                ],
                "left": left,
            },
            text,
        )
    if left:
        named = (
            f"\n  {one}: process {pid} ({program}, of {user})" for one, pid, user, program in left
        )
        raise StepFailedError(
            f"could not be stopped, still running:{''.join(islice(named, _MOST_NAMED))}",
            where=connection.box.known.name,
            hint="It is another user's, or stuck in a driver: look at it there (ps -fp NUMBER).",
        )


def end_runs(
    connection: BoxConnection, screen: Screen, runs: Sequence[Run]
) -> list[tuple[Run, StopAnswer]]:
    """Stop these runs, and return the answer for each. Raises as `end_run`."""
    # Queued runs first: else one of them would start when another run ends.
    asked = sorted(runs, key=lambda run: run.state != "queued")
    if running := ", ".join(one.name for one in asked if one.state == "running"):
        screen.note("stop", f"{running}: asked to end; killed after its `train.grace`")
    return [(one, end_run(connection, one)) for one in asked]


def end_run(connection: BoxConnection, run: Run) -> StopAnswer:
    """Stop this run, and wait until it has ended. Raises LinkLost, NoAnswer."""
    return _stop(connection, run.name, run.repo_key)


def _stop(connection: BoxConnection, what: str, repo_key: str = "") -> StopAnswer:
    """Stop the run of that name, or the setup at work."""
    query = build_query("stop", workdir=connection.workdir, what=what, repo_key=repo_key)
    answer = exchange(connection.link.wire, query, timeout=_PATIENCE_S + LONGEST_GRACE_S)
    return what_ended(answer)


def what_ended(answer: bytes) -> StopAnswer:
    """Read the box's answer."""
    said = [(word, value.split("\t")) for word, value in rows(answer)]
    left = [row for word, row in said if word == "left" and len(row) == 4]
    return any(word == "stopped" for word, _ in said), left


def _nothing(connection: BoxConnection, meant: list[Run], name: str | None) -> str:
    """Say that nothing selected was running, and which other runs are live on the box."""
    runs = connection.box_state.runs
    names = repository_names({one.repo_key for one in runs})
    others = [qualified(one, names) for one in runs if one.state == "running" and meant]
    if not others:
        return "nothing was running"
    whose = names[meant[0].repo_key]
    what = f"{qualified(meant[0], names)} was not" if name else f"nothing of {whose} was"
    return f"{what} running; still running: {', '.join(others)} (see --run, --all)"
