"""down: what you rented, and how it is given back."""

from __future__ import annotations

from bootstrap.errors import UsageError
from bootstrap.tasks.command import HOST, JSON, Call, Option, command


@command(
    HOST,
    JSON,
    Option("stop_runs", "End what runs or waits there first; on a terminal you are asked.", False),
    Option("discard", "Destroy it all the same; what goes with it is named.", False),
    Option("max_size", "What a run's results may be at the most, as in 200G.", "50G"),
    Option("profile", "A profile: its name, or a path."),
    Option("repo", "The repository that is meant; default: the one you stand in."),
    Option("identity", "The private key to log in with."),
    changes=(),
    interrupted="The box goes on, and on costing. To go on: boxstrap down",
)
def down(call: Call) -> None:
    """Bring home what a box has, and destroy it; refused with the list of what would be lost.

    Example: boxstrap down --host my-box
    """
    from bootstrap.renting.teardown import TeardownWish, tear_down
    from bootstrap.text.sizes import bytes_of

    given = call.given
    most = bytes_of(given["max_size"])
    if most is None:
        raise UsageError(f"--max-size: {given['max_size']!r} is no size.", hint="As in: 50G, 1.5T")
    wish = TeardownWish(most, given["discard"], given["stop_runs"], only_look=call.dry)
    tear_down(call.options(), call.screen, wish)
