"""Count a lease on this machine, by its account's clock; the count is kept with the box's record.

`box/lease/lease.py` does the counting, as on a box. Only the box knows how idle it is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping

from bootstrap.box.lease.lease import AccountReading, LeaseState, LeaseTerms, Tick, advance, limits
from bootstrap.errors import UnreachableError
from bootstrap.link.record import GUARD, KnownBox
from bootstrap.paths import write_private
from bootstrap.protocol.lease import BoxLease
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.rented import RentedBox
from bootstrap.text.sizes import dollars

BY_ITS_WORD = frozenset({"idle", "stall"})
"""Limits whose counts come from the box itself."""
_HELD_HERE = frozenset({"hours", "dollars"})
_TRY_S = 600.0
"""Seconds that count as tried between two looks, at most: this machine may have been asleep."""


def terms_of(lease: Mapping[str, object]) -> LeaseTerms:
    """Return those terms of the recorded lease that can be counted here."""
    names = ("seconds", "dollars", "price", "rented")
    return LeaseTerms(**{name: _number(lease.get(name)) for name in names})  # type: ignore[arg-type]


def _number(value: object) -> float | None:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_one else None  # type: ignore[arg-type]


def count(box: KnownBox, terms: LeaseTerms, rented: RentedBox, account: CloudAccount) -> LeaseState:
    """Count until now, and write the count down.

    Raises UnreachableError if the account does not report its time.
    """
    now, started = account.answered_at, rented.since or 0.0
    if now is None:
        raise UnreachableError(
            "its account does not say what time it is.",
            where=account.name,
            hint="Look at the provider's own page.",
        )
    state = read_count(box)
    tried, boot = state.over_for, str(started)
    if not state.boot and terms.rented is None:  # count from when a setup set the lease
        since = _number(box.lease.get("set")) or now
        state = LeaseState(boot=boot, at=max(0.0, since - started))
    said = AccountReading(now, rented.since, rented.price)
    extended = _number(box.lease.get("extended")) or 0.0
    tick = Tick(boot, now - started, 0.0, said=said, extended=extended)
    advance(terms, state, tick)
    state.over_for = min(state.over_for, tried + _TRY_S)  # nothing is tried during sleep
    write_count(box, state)
    return state


def describe_left(terms: LeaseTerms, state: LeaseState, use: BoxLease | str) -> str:
    """Describe what is left of it. `use`: the box's report, or why there is none."""
    found = {name: pair for name, pair in limits(terms, state).items() if name in _HELD_HERE}
    if isinstance(use, BoxLease):
        found |= {name: pair for name, pair in use.limits.items() if name in BY_ITS_WORD}
    left = BoxLease("yes", found).left()
    price = f" at {dollars(state.price)} an hour" if state.price else ""
    unknown = f"; how idle it is can't be said: {use}" if isinstance(use, str) and use else ""
    return f"{left}{price}{unknown}"


def read_count(box: KnownBox) -> LeaseState:
    """Return the count so far; an empty one if there is none or its file is invalid."""
    try:
        kept = json.loads((box.folder / GUARD).read_text(encoding="utf-8"))
        return LeaseState.read(kept["counted"])
    except (OSError, ValueError, TypeError, KeyError):
        return LeaseState()


def write_count(box: KnownBox, state: LeaseState) -> None:
    """Write it next to the box's record."""
    text = json.dumps({"v": 1, "counted": dataclasses.asdict(state)})
    if box.folder.is_dir():  # else a teardown has put the record aside
        with contextlib.suppress(OSError):  # on a full disk leases must still be ended
            write_private(box.folder / GUARD, text + "\n")
