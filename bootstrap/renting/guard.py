"""`guard`: holds the leases of boxes that can't hold them, from a machine of the person's.

Counted is what accounts say by their own clocks and each box's last start, as the monitor on a box
does it (`box/lease.py`). Only boxes that this machine knows by their account's id are ended.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass

from bootstrap.box.lease import LeaseState, LeaseTerms, Tick, advance, limits, reached
from bootstrap.errors import BoxstrapError, UnreachableError
from bootstrap.link.handle import BoxOptions
from bootstrap.link.record import GUARD, KnownBox, all_boxes
from bootstrap.paths import write_private
from bootstrap.protocol.lease import BoxLease
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.rented import RentedBox, RentedState
from bootstrap.renting.ownership import account_of, rented_host
from bootstrap.runs.connection import connect
from bootstrap.runs.stop import end_runs
from bootstrap.text.sizes import dollars
from bootstrap.ui.screen import Screen

_ENDED = {RentedState.STOPPED: "it is stopped", RentedState.GONE: "it is gone"}


@dataclass(frozen=True)
class GuardedBox:
    """What became of one box's lease."""

    name: str
    host: str
    says: str
    over: str = ""
    stopped: bool = False
    error: BoxstrapError | None = None

    def as_dict(self) -> dict[str, object]:
        """As `--json` prints it."""
        return {
            "box": self.name,
            "host": self.host,
            "says": self.says,
            "over": self.over or None,
            "stopped": self.stopped,
        }


def guard_once(screen: Screen) -> None:
    """Look once at each box that has a lease, and stop those whose lease is over.

    Raises UsageError where an account's key is not here; UnreachableError where a box could not be
    looked at, or not be stopped.
    """
    boxes = [box for box in all_boxes() if box.lease and rented_host(box)]
    others = [box.name for box in all_boxes() if box.lease and not rented_host(box)]
    found = [_guarded(box, screen) for box in boxes]
    lines = [f"{one.name} ({one.host}): {one.says}" for one in found]
    lines += [f"{name}: no account's id is known of it, so nothing here ends it" for name in others]
    screen.result(
        {"boxes": [one.as_dict() for one in found], "not_by_id": others},
        "\n".join(lines) or "no box that is known here has a lease",
    )
    error = next((one.error for one in found if one.error), None)
    if error:
        raise error


def _guarded(box: KnownBox, screen: Screen) -> GuardedBox:
    try:
        return _look(box, screen)
    except BoxstrapError as error:
        return GuardedBox(box.name, box.host_text, f"{error.what} It is tried again.", error=error)


def _look(box: KnownBox, screen: Screen) -> GuardedBox:
    account, box_id = account_of(box.host_text)
    rented = account.box(box_id)  # and so the key is proved before anything counts
    if box.lease.get("held") == "yes":
        _write(box, _read(box))
        return GuardedBox(box.name, box.host_text, "it holds its lease itself")
    if rented is None or rented.state in _ENDED:
        words = _ENDED[rented.state if rented else RentedState.GONE]
        return GuardedBox(box.name, box.host_text, words)
    terms = _terms(box.lease)
    state = _counted(box, terms, rented, account)
    over = reached(terms, state)
    if not over:
        return GuardedBox(box.name, box.host_text, _left(terms, state))
    if account.stops is None:
        says = f"its lease is over ({over}), and {account.title} stops no box: it goes on, and on "
        says += "costing. End it: boxstrap down"
        return GuardedBox(box.name, box.host_text, says, over)
    _end_runs(box, screen)
    account.stop(box_id)
    says = f"its lease is over ({over}): stopped. It still costs {account.stops.costs}"
    return GuardedBox(box.name, box.host_text, says, over, stopped=True)


def _terms(lease: Mapping[str, object]) -> LeaseTerms:
    seconds, dollars_, price = map(_number, map(lease.get, ("seconds", "dollars", "price")))
    return LeaseTerms(seconds=seconds, dollars=dollars_, price=price)


def _number(value: object) -> float | None:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_one else None  # type: ignore[arg-type]


def _counted(
    box: KnownBox, terms: LeaseTerms, rented: RentedBox, account: CloudAccount
) -> LeaseState:
    """What is counted until now, and written down."""
    now, started = account.answered_at, rented.since or 0.0
    if now is None:
        raise UnreachableError(
            "its account does not say what time it is.",
            where=account.name,
            hint="Look at the provider's own page.",
        )
    state = _read(box)
    boot = str(started)
    if not state.boot:  # from the moment on in which a setup set it
        since = _number(box.lease.get("set")) or now
        state = LeaseState(boot=boot, at=max(0.0, since - started))
    if rented.price is not None:
        state.price = rented.price
    tick = Tick(boot, now - started, 0.0, extended=_number(box.lease.get("extended")) or 0.0)
    advance(terms, state, tick)
    _write(box, state)
    return state


def _left(terms: LeaseTerms, state: LeaseState) -> str:
    found = {name: pair for name, pair in limits(terms, state).items() if name in _HELD_HERE}
    left = BoxLease("yes", found).left()
    if not found:
        return "its lease has neither hours nor dollars; what is idle only the box knows"
    price = f" at {dollars(state.price)} an hour" if state.price else ""
    return f"{left}{price}"


_HELD_HERE = frozenset({"hours", "dollars"})


def _end_runs(box: KnownBox, screen: Screen) -> None:
    """Ask what runs there to end, each with its grace. What can't be asked is stopped all the same:
    a lease that waits for a login would never end."""
    try:
        with connect(BoxOptions(host=box.name), screen) as connection:
            runs = [one for one in connection.box_state.runs if one.goes_on or one.left]
            end_runs(connection, screen, runs)
    except BoxstrapError as error:
        screen.warn(f"{box.name}: its runs could not be asked to end: {error.what}")


def _read(box: KnownBox) -> LeaseState:
    try:
        kept = json.loads((box.folder / GUARD).read_text(encoding="utf-8"))
        return LeaseState.read(kept["counted"])
    except (OSError, ValueError, TypeError, KeyError):
        return LeaseState()


def _write(box: KnownBox, state: LeaseState) -> None:
    text = json.dumps({"v": 1, "counted": dataclasses.asdict(state)})
    write_private(box.folder / GUARD, text + "\n")
