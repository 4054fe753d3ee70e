"""Ending a run, or the setup at work."""

from __future__ import annotations

from bootstrap.after.visit import visit
from bootstrap.contact import Asked
from bootstrap.errors import UsageError
from bootstrap.link.exchange import exchange
from bootstrap.talk.question import question
from bootstrap.ui.clean import clean
from bootstrap.ui.screen import Screen

_MOST_NAMED = 20
"""Processes that are named; a stranger's box may send as many as it likes."""


def stop_run(asked: Asked, screen: Screen, *, run: str | None, setup: bool) -> None:
    """End what is meant, wait until it has ended, and say so. Nothing running is no error."""
    with visit(asked, screen) as there:
        if setup:
            what, key = "setup", ""
        else:
            chosen = there.run(run)
            if run is None:
                chosen = next((r for r in there.hello.runs if r.state == "running"), chosen)
            what, key = chosen.name, chosen.repo_key
        if what == "setup" and run:
            raise UsageError("a run or the setup: not both.")
        answer = exchange(
            there.link.wire,
            question("stop", workdir=there.workdir, what=what, repo_key=key),
            timeout=60,
        )
        stopped = [line.split("\t") for line in clean(answer).splitlines() if "\t" in line]
        names = [parts[1] for parts in stopped if parts[0] == "stopped"]
        left = [parts[1:5] for parts in stopped if parts[0] == "left" and len(parts) == 5]
        for name, pid, user, program in left[:_MOST_NAMED]:
            screen.warn(f"{name}: process {pid} ({program}, of {user}) could not be ended")
        console = there.box.recall("console")
        text = f"stopped: {', '.join(names)}" if names else "nothing was running"
        if console:
            text += f"\nstill billing: destroy it at {console}"
        screen.result({"box": there.box.known.name, "stopped": names, "left": left}, text)
