"""`guard`: holds the leases of boxes that can't do it themselves, from a machine of the user.

How long a box has been idle or hung is known only from its own report: that can end only this box,
and extends no lease. Only boxes that this machine knows by their account's id are ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.box.lease.lease import CAN_END, DESTROY, WIPES, LeaseState, reached
from bootstrap.box.lease.lease_api import APIS
from bootstrap.errors import BoxstrapError, NotSafeError
from bootstrap.link.handle import BoxOptions
from bootstrap.link.record import KnownBox, all_boxes
from bootstrap.protocol.lease import LOST, BoxLease
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.rented import RentedBox, RentedState
from bootstrap.renting import rental
from bootstrap.renting.ending import end, teardown_lock
from bootstrap.renting.lease_count import (
    BY_ITS_WORD,
    count,
    describe_left,
    read_count,
    terms_of,
    write_count,
)
from bootstrap.renting.ownership import OwnBox, account_of, find_own, rented_host
from bootstrap.renting.teardown import TeardownWish, secure
from bootstrap.renting.unsafe import Unsafe
from bootstrap.repo.identity import known_folder
from bootstrap.runs.connection import connect
from bootstrap.runs.stop import end_runs
from bootstrap.ui.screen import Screen

_ENDED = {RentedState.STOPPED: "it is stopped", RentedState.GONE: "it is gone"}


@dataclass(frozen=True)
class GuardedBox:
    """The result of guarding one box."""

    name: str
    host: str
    says: str
    over: str = ""
    stopped: bool = False
    destroyed: bool = False
    unsafe: Sequence[Unsafe] = ()
    """What existed only on the box when its lease was over, if that mattered."""
    error: BoxstrapError | None = None

    def as_dict(self) -> dict[str, object]:
        """Return what `--json` prints."""
        return {
            "box": self.name,
            "host": self.host,
            "says": self.says,
            "over": self.over or None,
            "stopped": self.stopped,
            "destroyed": self.destroyed,
            "unsafe": [one.as_dict() for one in self.unsafe],
        }


def guard_once(screen: Screen) -> None:
    """Look once at each box that has a lease, and end those whose lease is over.

    Raises UsageError if an account's key is missing; UnreachableError if a box could not be
    checked or ended.
    """
    leased = [box for box in all_boxes() if box.lease]
    boxes = [box for box in leased if rented_host(box)]
    others = [box.name for box in leased if not rented_host(box)]
    hosts = {box.host_text for box in boxes}
    rented = [one.host for one in rental.all_rentals() if one.state is rental.RentalState.RENTED]
    unheld = [host for host in rented if host not in hosts]
    found = [_guarded(box, screen) for box in boxes]
    lines = [f"{one.name} ({one.host}): {one.says}" for one in found]
    lines += [f"{name}: its account's id is unknown, so nothing here ends it" for name in others]
    lines += [
        f"{host}: it was rented from here and has no lease, so nothing ends it. To go on: boxstrap "
        f"up; to end it: boxstrap down --host {host}"
        for host in unheld
    ]
    screen.result(
        {"boxes": [one.as_dict() for one in found], "not_by_id": others, "without_lease": unheld},
        "\n".join(lines) or "no box that is known here has a lease",
    )
    error = next((one.error for one in found if one.error), None)
    if error:
        raise error


def _guarded(box: KnownBox, screen: Screen) -> GuardedBox:
    try:
        with teardown_lock(box) as is_ours:
            if is_ours:
                return _look(box, screen)
            return GuardedBox(box.name, box.host_text, "another command is working on it")
    except BoxstrapError as error:
        return GuardedBox(box.name, box.host_text, f"{error.what} It is tried again.", error=error)


def _look(box: KnownBox, screen: Screen) -> GuardedBox:
    account, box_id = account_of(box.host_text)
    rented = account.box(box_id)  # also shows that the key works, before anything is counted
    if box.lease.get("held") == "yes" and _holds_itself(box, rented, account, screen):
        return GuardedBox(box.name, box.host_text, "it holds its lease itself")
    if rented is None or rented.state in _ENDED:
        words = _ENDED[rented.state if rented else RentedState.GONE]
        return GuardedBox(box.name, box.host_text, words)
    if rental.is_another(rented):
        return GuardedBox(box.name, box.host_text, "its account gave that id to another rental")
    terms = terms_of(box.lease)
    state = count(box, terms, rented, account)
    over = reached(terms, state)
    use: BoxLease | str = ""
    if not over and any(box.lease.get(name) for name in BY_ITS_WORD):
        use = _ask_box(box, screen)
        over = use.over if isinstance(use, BoxLease) and use.over in BY_ITS_WORD else ""
    if not over:
        return GuardedBox(box.name, box.host_text, describe_left(terms, state, use))
    return _end(box, OwnBox(account, rented), over, state, screen)


def _holds_itself(
    box: KnownBox, rented: RentedBox | None, account: CloudAccount, screen: Screen
) -> bool:
    """Whether the box still holds its lease, as far as is known: monitor or key may be gone."""
    if rented is None or rented.state in _ENDED:
        write_count(box, read_count(box))
        return True
    terms = terms_of(box.lease)
    if not reached(terms, count(box, terms, rented, account)):
        return True
    try:
        with connect(BoxOptions(host=box.name), screen) as connection:
            lease = connection.box_state.lease
    except BoxstrapError:
        return True
    # The user may have extended or released it from another machine.
    return lease is None or lease.held in CAN_END


def _end(box: KnownBox, own: OwnBox, over: str, state: LeaseState, screen: Screen) -> GuardedBox:
    """End the box as its lease says, if that is allowed."""
    account = own.account
    if box.lease.get("then") == DESTROY:
        return _destroy_or_stop(box, own, over, state, screen)
    # Only the box's monitor knows what runs wrote outside the volume since the setup.
    said = _ask_box(box, screen) if account.stops and account.stops.only_volume else ""
    would_wipe = isinstance(said, BoxLease) and said.held == WIPES
    if account.stops is None or would_wipe or _wipes(box, account):
        why = f"would keep {account.stops.keeps} of it" if account.stops else "stops no box"
        says = f"its lease is over ({over}), and {account.title} {why}: it keeps running and "
        says += "costing. End it: boxstrap down"
        return GuardedBox(box.name, box.host_text, says, over)
    _end_runs(box, screen)
    account.stop(own.box.id)
    says = f"its lease is over ({over}): stopped. It still costs {account.stops.costs}"
    return GuardedBox(box.name, box.host_text, says, over, stopped=True)


def _wipes(box: KnownBox, account: CloudAccount) -> bool:
    """Whether a stop would lose files outside the volume, as far as is known here."""
    volume = APIS[account.name].volume if account.name in APIS else ""
    beside = bool(volume) and not f"{box.workdir}/".startswith(f"{volume}/")
    return beside or box.lease.get("held") == WIPES


def _destroy_or_stop(
    box: KnownBox, own: OwnBox, over: str, state: LeaseState, screen: Screen
) -> GuardedBox:
    """Do what `down` does if nothing on the box is unsafe; else stop it, if its account can.

    If it can't, unsafe results are lost: all that can be fetched was fetched, the rest is named.
    """
    lost, was_seen = _bring_home(box, screen)
    account, ends = own.account, f"its lease is over ({over})"
    named = "".join(f"\n  {one}" for one in lost)
    if lost and account.stops:
        account.stop(own.box.id)
        says = f"{ends}: stopped, since this is not safe:{named}"
        return GuardedBox(box.name, box.host_text, says, over, stopped=True, unsafe=lost)
    if not was_seen and state.over_for < _UNSEEN_S:
        says = f"{ends}, and it can't be reached:{named}\n"
        says += "It is tried again; later the box is destroyed"
        return GuardedBox(box.name, box.host_text, says, over, unsafe=lost)
    done = end(account, own.box, box, screen, lost)
    says = f"{ends}: {done.text()}"
    return GuardedBox(box.name, box.host_text, says, over, destroyed=True, unsafe=lost)


def _bring_home(box: KnownBox, screen: Screen) -> tuple[list[Unsafe], bool]:
    """End its runs and fetch what can be; return what is still unsafe, and whether it was seen."""
    git_dir = known_folder(box.repo_key, box.repo_root) if box.repo_key else None
    place = git_dir.parent if git_dir and git_dir.name == ".git" else git_dir
    options = BoxOptions(host=box.name, repo=place)
    try:
        with connect(options, screen) as connection:
            find_own(options, connection.box, connection.link.wire)  # check that it is this box
            wish = TeardownWish(_MOST, stop_runs=True)
            return secure(options, connection, screen, wish), True
    except NotSafeError:
        raise
    except BoxstrapError as error:
        return [
            Unsafe("unseen", box.name, f"what is on it: nobody could look: {error.what}")
        ], False


def _ask_box(box: KnownBox, screen: Screen) -> BoxLease | str:
    """Return its use as its monitor counts it; else why that is unknown."""
    try:
        with connect(BoxOptions(host=box.name), screen) as connection:
            lease = connection.box_state.lease
    except BoxstrapError as error:
        return error.what
    is_counted = lease is not None and lease.held != LOST
    return lease if lease and is_counted else "nothing counts that on the box"


_UNSEEN_S = 1800.0
"""Seconds to keep trying to see a box that can't be stopped, before it is destroyed unseen."""
_MOST = 50 * 1000**3
"""Limit for a run's results in bytes, as in `down`."""


def _end_runs(box: KnownBox, screen: Screen) -> None:
    """Ask its runs to end, each with its grace. The box is stopped even if this fails: a lease that
    waits for a login would never end."""
    try:
        with connect(BoxOptions(host=box.name), screen) as connection:
            runs = [one for one in connection.box_state.runs if one.goes_on or one.left]
            end_runs(connection, screen, runs)
    except BoxstrapError as error:
        screen.warn(f"{box.name}: its runs could not be asked to end: {error.what}")
