"""lease, guard: show or change a box's lease, and end boxes whose lease is over."""

from __future__ import annotations

from bootstrap.errors import UsageError
from bootstrap.tasks.command import HOST, JSON, Call, Option, command


@command(
    HOST,
    JSON,
    Option("identity", "The private key to log in with."),
    Option("extend", "Add so much time to it, as in 2h (m, h, d)."),
    Option("release", "End it: nothing ends the box any more.", False),
    changes=("extend", "release"),
)
def lease(call: Call) -> None:
    """Say what is left of a box's lease, and who holds it; extend it, or end it.

    Example: boxstrap lease --host my-box --extend 2h
    """
    from bootstrap.runs.lease import show_lease

    given = call.given
    show_lease(call.options(), call.screen, extend=given["extend"], release=given["release"])


@command(
    JSON,
    Option("once", "Look once, and leave: for a cron line.", False),
    changes=("once",),
)
def guard(call: Call) -> None:
    """End the boxes whose lease is over and that can't hold it themselves, from this machine.

    Example: boxstrap guard --once
    """
    from bootstrap.renting.guard import guard_once

    if not call.given["once"]:
        raise UsageError(
            "guard needs --once.",
            hint="Let cron call it, with a line in `crontab -e`:\n"
            f"  */5 * * * * {_this_program()} guard --once >/dev/null",
        )
    guard_once(call.screen)


def _this_program() -> str:
    """Return its full path, because cron has a different PATH."""
    import shlex
    import shutil
    import sys

    return shlex.quote(shutil.which(sys.argv[0]) or "boxstrap")
