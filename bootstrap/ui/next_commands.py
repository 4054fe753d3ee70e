"""The next commands, printed at the end of a setup. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.text import sizes


@dataclass(frozen=True)
class NextCommands:
    """What can be done with a box; an empty field leaves its line out."""

    box: str
    run: str = ""  # the run's name
    state: str = "running"  # what became of the run: running, finished, failed (exit 1), …
    attach: str = ""  # this and the following are commands, as they are typed
    follow: str = ""
    stop: str = ""
    shell: str = ""
    ssh: str = ""  # the same with the user's own ssh
    code: str = ""
    pull: str = ""
    fetch: Sequence[str] = ()  # the same with the user's own scp
    status: str = ""
    down: str = ""  # only for a rented box
    destroy_at: str = ""  # a URL or a sentence, if known
    price: float | None = None  # dollars an hour


def what_next(following: NextCommands) -> str:
    """Return the block that ends a setup: state, aligned commands, and the billing reminder."""
    run = f"run {following.run}: {following.state}" if following.run else "set up"
    commands = [
        ("attach", following.attach),
        ("follow", following.follow),
        ("stop", following.stop),
        ("shell", following.shell),
        ("ssh", following.ssh),
        ("VS Code", following.code),
        ("pull", following.pull),
        *(("fetch", command) for command in following.fetch),
        ("status", following.status),
    ]
    told = [(label, command) for label, command in commands if command]
    width = max((len(label) for label, _ in told), default=0)
    blocks = [f"{following.box}: {run}"]
    if told:
        blocks.append("\n".join(f"  {label:<{width}}  {command}" for label, command in told))
    if following.down:
        blocks.append(still_billing(following.down, following.destroy_at, following.price))
    return "\n\n".join(blocks)


def still_billing(down: str, destroy_at: str = "", price: float | None = None) -> str:
    """Return the billing reminder, with how to end it."""
    costs = "still billing" if price is None else f"still billing {sizes.dollars(price)} an hour"
    place = f"at {destroy_at}" if destroy_at else "where you rented it"
    return f"{costs}: give it back with {down}, or destroy it {place}"
