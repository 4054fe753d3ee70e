"""Ending runs, or the setup at work."""

from __future__ import annotations

from itertools import islice

from bootstrap.errors import StepFailedError, UsageError
from bootstrap.link.exchange import exchange
from bootstrap.link.handle import BoxOptions
from bootstrap.link.parsing import rows
from bootstrap.protocol.query import build_query
from bootstrap.protocol.run import Run
from bootstrap.runs.connection import BoxConnection, connect
from bootstrap.runs.selection import qualified, repository_names
from bootstrap.ui.screen import Screen
from bootstrap.ui.words import still_billing

_MOST_NAMED = 20
"""Processes that are named; a stranger's box may send as many as it likes."""


def stop_run(
    options: BoxOptions, screen: Screen, *, run: str | None, every: bool, setup: bool
) -> None:
    """End what is meant, wait until it has ended, and say so. Nothing running is no error.

    That is one run, with `every` all that live on the box, with `setup` the setup at work.
    Raises UsageError, and StepFailedError with the list of what could not be ended.
    """
    if setup and (run or every):
        raise UsageError("a run or the setup: not both.")
    left: list[list[str]] = []
    with connect(options, screen) as connection:
        meant = [] if setup else connection.runs(run, every=every)
        living = [one for one in meant if one.state == "running" or one.left]
        ended = [
            one
            for one in (living if every else (living or meant)[:1])
            if _stop(connection, one, left)
        ]
        stopped = [f"{one.name} of {connection.repository(one)}" for one in ended]
        if setup and _stop(connection, None, left):
            stopped = [
                f"setup ({connection.box_state.holder})" if connection.box_state.holder else "setup"
            ]
        text = f"stopped: {', '.join(stopped)}" if stopped else _nothing(connection, meant, run)
        if not connection.box.is_local:
            text += f"\n{still_billing(connection.box.known.console)}"
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
            f"could not be ended, and goes on:{''.join(islice(named, _MOST_NAMED))}",
            where=connection.box.known.name,
            hint="It is another user's, or stuck in a driver: look at it there (ps -fp NUMBER).",
        )


def _stop(connection: BoxConnection, run: Run | None, left: list[list[str]]) -> bool:
    """End the run, or the setup at work; whether the box says that it did. What it left is added:
    the run, and a process's number, user and program."""
    what, key = (run.name, run.repo_key) if run else ("setup", "")
    query = build_query("stop", workdir=connection.workdir, what=what, repo_key=key)
    did, others = what_ended(exchange(connection.link.wire, query, timeout=60))
    left += others
    return did


def what_ended(answer: bytes) -> tuple[bool, list[list[str]]]:
    """Whether the box says that it ended it, and what it left."""
    said = [(word, value.split("\t")) for word, value in rows(answer)]
    left = [row for word, row in said if word == "left" and len(row) == 4]
    return any(word == "stopped" for word, _ in said), left


def _nothing(connection: BoxConnection, meant: list[Run], name: str | None) -> str:
    """Nothing of what was meant was running; who else lives there is worth a word."""
    runs = connection.box_state.runs
    names = repository_names({one.repo_key for one in runs})
    others = [qualified(one, names) for one in runs if one.state == "running" and meant]
    if not others:
        return "nothing was running"
    whose = names[meant[0].repo_key]
    what = f"{qualified(meant[0], names)} was not" if name else f"nothing of {whose} was"
    return f"{what} running; these go on: {', '.join(others)} (see --run, --all)"
