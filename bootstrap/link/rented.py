"""A host that is named by its account's id: where it is reached now."""

from __future__ import annotations

import dataclasses

from bootstrap.errors import UsageError
from bootstrap.link.record import KnownBox
from bootstrap.link.resolve import has_alias
from bootstrap.link.target import Target


def reached(target: Target, box: KnownBox | None) -> Target:
    """Where the box was reached last; of one that isn't known yet what its account says.

    Raises as `look_up`.
    """
    if box is None or not box.address:
        return look_up(target)
    return dataclasses.replace(target, address=box.address, port=box.port, user=box.user or None)


def look_up(target: Target) -> Target:
    """The target with the address that the account has for it now, and what it costs.

    Raises UsageError where there is no key or no such box, UnreachableError where the account
    can't be asked, or says that the box can't be reached.
    """
    from bootstrap.providers.accounts import find_rented  # most starts ask no account

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
    """Raise UsageError where the user's ssh config could mean the same words."""
    name, _, number = target.text.partition(":")
    is_port = number.isdecimal() and 0 < int(number) < 65536
    alias = target.text if has_alias(target.text) else name if is_port and has_alias(name) else ""
    if alias:
        other = f"port {number} of " if alias == name else ""
        raise UsageError(
            f"{target.text} has two readings: the box {number} of your account at {name}, and "
            f"{other}{alias} of your ssh config.",
            where="--host",
            hint=f"For the second say ssh://{alias}{f':{number}' if other else ''}; for the first "
            "give that entry of your ssh config another name.",
        )
