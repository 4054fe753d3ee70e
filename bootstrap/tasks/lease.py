"""lease: what ends a box when nobody does."""

from __future__ import annotations

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
