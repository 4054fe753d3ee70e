"""Hosts given by an account's id (`provider:id`): where they are reached now."""

from __future__ import annotations

import dataclasses

from bootstrap.errors import UsageError
from bootstrap.link.record import KnownBox
from bootstrap.link.resolve import has_alias
from bootstrap.link.target import Target


def reached(target: Target, box: KnownBox | None) -> Target:
    """Return where the box was reached last; for an unknown box, what its account reports.

    Raises as `look_up`.
    """
    if box is None or not box.address:
        return look_up(target)
    return dataclasses.replace(target, address=box.address, port=box.port, user=box.user or None)


def look_up(target: Target) -> Target:
    """Return the target with its current address and price, as its account reports them.

    Raises UsageError if there is no API key or no such box, UnreachableError if the account
    can't be asked, or reports that the box can't be reached.
    """
    from bootstrap.providers.accounts import find_rented  # here, as most calls ask no account

    box = find_rented(target.text)
    return dataclasses.replace(
        target,
        address=box.address,
        port=box.port,
        user=box.user,
        price=box.price or 0.0,
        since=box.since or 0.0,
    )


def refuse_alias(target: Target) -> None:
    """Raise UsageError if the text could also mean a host of the user's ssh config."""
    name, _, number = target.text.partition(":")
    is_port = number.isdecimal() and 0 < int(number) < 65536
    alias = target.text if has_alias(target.text) else name if is_port and has_alias(name) else ""
    if alias:
        other = f"port {number} of " if alias == name else ""
        raise UsageError(
            f"{target.text} is ambiguous: the box {number} of your account at {name}, or "
            f"{other}{alias} of your ssh config.",
            where="--host",
            hint=f"For the second say ssh://{alias}{f':{number}' if other else ''}; for the first "
            "give that entry of your ssh config another name.",
        )
