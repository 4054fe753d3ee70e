"""`guard`: holds the leases of boxes that can't do it themselves, from a machine of the user.

It counts by the account's clock, as `onbox/lease/rules.py` does on a box, and keeps the count with
the box's record. How long a box has been idle or hung is known only from its own report: that can
end only this box, and extends no lease. Only boxes that this machine knows by their account's id
are ended.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.probe import LOST, UNPRICED, BoxLease, LeaseLimit
from bootstrap.errors import BoxstrapError, NotSafeError, UnreachableError
from bootstrap.link.cancel import CancelledError, within
from bootstrap.link.record import GUARD, KnownBox, all_boxes, read_box
from bootstrap.link.target import BoxOptions, Once
from bootstrap.onbox.lease import rules
from bootstrap.onbox.lease.instance import APIS
from bootstrap.paths import read_record, write_private
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import RentedBox, RentedState
from bootstrap.renting import rental
from bootstrap.renting.loss_check import Loss
from bootstrap.renting.ownership import OwnBox, account_of, find_own, rented_host
from bootstrap.renting.teardown import (
    TeardownOptions,
    end_rental,
    given_back,
    secure,
    teardown_lock,
)
from bootstrap.repo.local import known_place
from bootstrap.runs.run_end import end_runs
from bootstrap.sizes import dollars, duration
from bootstrap.ui.screen import Screen
from bootstrap.value import Document

BY_ITS_WORD = frozenset({"idle", "stall"})  # limits whose counts come from the box itself
_HELD_HERE = frozenset({"hours", "dollars"})
_TRY_S = 600.0
"""Seconds that count as tried between two looks, at most: this machine may have been asleep."""


def terms_of(box: KnownBox) -> rules.LeaseTerms:
    """Return those terms of the recorded lease that can be counted here."""
    names = ("seconds", "dollars", "price", "rented")
    return rules.LeaseTerms(**{name: box.of_lease(name) for name in names})  # type: ignore[arg-type]


def count_lease(
    box: KnownBox, terms: rules.LeaseTerms, rented: RentedBox, account: CloudAccount
) -> rules.LeaseState:
    """Count until now, and write it down. Raises UnreachableError if the account tells no time."""
    now, started = account.answered_at, rented.since or 0.0
    if now is None:
        raise UnreachableError(
            "its account does not say what time it is.",
            where=account.name,
            hint="Look at the provider's own page.",
        )
    state = read_count(box)
    if state.account_now is not None and started <= state.account_now:
        started = float(state.boot)  # started before the last look: Vast.ai's minutes are rounded
    tried, boot = state.over_for, str(started)
    if not state.boot and terms.rented is None:  # count from when a setup set the lease
        since = box.of_lease("set") or now
        state = rules.LeaseState(boot=boot, at=max(0.0, since - started))
    said = rules.AccountReading(now, rented.since, rented.price)
    extended = box.of_lease("extended") or 0.0
    tick = rules.Tick(boot, now - started, 0.0, said=said, extended=extended)
    rules.advance(terms, state, tick)
    state.over_for = min(state.over_for, tried + _TRY_S)  # nothing is tried during sleep
    write_count(box, state)
    return state


def describe_left(terms: rules.LeaseTerms, state: rules.LeaseState, use: BoxLease | str) -> str:
    """Describe what is left of it. `use`: the box's report, or why there is none."""
    found = {n: LeaseLimit(*p) for n, p in rules.limits(terms, state).items() if n in _HELD_HERE}
    if isinstance(use, BoxLease):
        found |= {name: pair for name, pair in use.limits.items() if name in BY_ITS_WORD}
    kept = use.kept if isinstance(use, BoxLease) else 0.0
    left = BoxLease("yes", found, kept=kept).left()
    price = f" at {dollars(state.price)} an hour" if state.price else ""
    unknown = f"; how idle it is can't be said: {use}" if isinstance(use, str) and use else ""
    is_unpriced = "dollars" in found and state.price is None and terms.price is None
    return f"{left}{price}{unknown}{UNPRICED if is_unpriced else ''}"


def read_count(box: KnownBox) -> rules.LeaseState:
    """Return the count so far; an empty one if there is none or its file is invalid."""
    try:
        return rules.LeaseState.read(read_record(box.folder / GUARD)["counted"])
    except (OSError, ValueError, TypeError, KeyError):
        return rules.LeaseState()


def write_count(box: KnownBox, state: rules.LeaseState) -> None:
    text = json.dumps({"v": 1, "counted": dataclasses.asdict(state)})
    if box.folder.is_dir():  # else a teardown has put the record aside
        with contextlib.suppress(OSError):  # on a full disk leases must still be ended
            write_private(box.folder / GUARD, text + "\n")


_ENDED = {RentedState.STOPPED: "it is stopped", RentedState.GONE: "it is gone"}


@dataclass(frozen=True)
class GuardedBox(Document):
    """The result of guarding one box."""

    KEYS = "box=name, host, says, over or None, stopped, destroyed, unsafe"

    name: str
    host: str
    says: str
    over: str = ""
    stopped: bool = False
    destroyed: bool = False
    unsafe: Sequence[Loss] = ()
    """What existed only on the box when its lease was over, if that mattered."""
    error: BoxstrapError | None = None
    ends_with_cluster: OwnBox | None = None
    """The box in its account, if it is to be destroyed together with its cluster."""


LookAtAll = Callable[
    [Sequence[KnownBox], Callable[[KnownBox, Screen], GuardedBox]],
    Sequence["GuardedBox | BoxstrapError"],
]


def guard_once(screen: Screen, look_at_all: LookAtAll) -> None:
    """Look once at each box that has a lease, and end those whose lease is over.

    `look_at_all` looks at each one by itself, with a screen of its own: no box, however long what
    it has takes to come home, keeps another one's lease from being held. Raises UsageError if an
    account's key is missing; UnreachableError if it is refused, or a box can't be checked or ended.
    """
    leased = [box for box in all_boxes() if box.lease]
    boxes = [box for box in leased if rented_host(box)]
    others = [box.name for box in leased if not rented_host(box)]
    hosts = {box.host_text for box in boxes}
    looked = [
        _not_enforced(box, one) if isinstance(one, BoxstrapError) else one
        for box, one in zip(boxes, look_at_all(boxes, _guarded), strict=True)
    ]
    found = _end_clusters(boxes, looked, screen)
    rented = [one for one in rental.all_rentals() if one.state is rental.RentalState.RENTED]
    unheld = [one for one in rented if one.host not in hosts and not _is_gone(one)]
    lines = [f"{one.name} ({one.host}): {one.says}" for one in found]
    over = [box.name for box in leased if box.name in others and _is_over_here(box)]
    lines += [
        f"{name}: its account's id is unknown, so nothing here ends it"
        + (", though by the count here its lease is over" if name in over else "")
        for name in others
    ]
    known = {box.host_text for box in all_boxes()}
    for one in unheld:
        what, on = "has no lease, so nothing ends it", "up"
        if one.ready and one.host not in known:
            what, on = "forgotten, so its lease isn't known here", f"setup --host {one.host}"
        lines.append(
            f"{one.host}: it was rented from here and {what}. To go on: boxstrap {on}; to end it: "
            f"boxstrap down --host {one.host}"
        )
    screen.result(
        {"boxes": found, "not_by_id": others, "without_lease": [one.host for one in unheld]},
        "\n".join(lines) or "no box that is known here has a lease",
    )
    if error := next((one.error for one in found if one.error), None):
        raise error
    if over:
        raise UnreachableError(
            "its lease is over, and nothing here can end it.",
            where=", ".join(over),
            hint="End it on its provider's page, then: boxstrap boxes --forget "
            f"{over[0]}; or let it go on: boxstrap lease --host {over[0]} --release",
        )


def _is_gone(one: rental.Rental) -> bool:
    """Whether the account whose key is here, if it can be asked, has no such box. Nothing is noted:
    another key may be set, of an account that never had it."""
    with contextlib.suppress(BoxstrapError):
        account, box_id = account_of(one.host)
        return one.ready and one.boxes == 1 and account.is_gone(box_id)
    return False


def _is_over_here(box: KnownBox) -> bool:
    """Whether the hours of a lease that the box does not hold itself are over by this clock."""
    since, most = box.of_lease("set"), box.of_lease("seconds")
    extended = box.of_lease("extended") or 0.0
    is_over = since is not None and most is not None and since + most + extended < time.time()
    return is_over and box.lease.get("held") not in rules.CAN_END


def _guarded(box: KnownBox, screen: Screen) -> GuardedBox:
    """Raises BoxstrapError where it can't be looked at, or ended."""
    with teardown_lock(box) as is_ours:
        if not is_ours:
            return GuardedBox(box.name, box.host_text, "another command is working on it")
        now = read_box(box.folder)  # what was read may be of a while ago
        is_it = now is not None and (now.host_text, now.created) == (box.host_text, box.created)
        now = now if now and is_it and now.lease else None
        return _look(now, screen) if now else GuardedBox(box.name, box.host_text, _LET_GO)


def _not_enforced(box: KnownBox, error: BoxstrapError) -> GuardedBox:
    says = f"nothing can be enforced from here now: {error.what} It is tried again."
    return GuardedBox(box.name, box.host_text, says, error=error)


_LET_GO = "its lease was released or extended, or its record put aside, in the meantime"


def _is_let_go(box: KnownBox) -> bool:
    """Whether the user released or extended its lease while its runs ended or results came."""
    now = read_box(box.folder)
    before = (bool(box.lease), box.lease.get("extended"))
    return now is not None and (bool(now.lease), now.lease.get("extended")) != before


def _look(box: KnownBox, screen: Screen) -> GuardedBox:
    account, box_id = account_of(box.host_text)
    rented = account.box(box_id)  # also shows that the key works, before anything is counted
    says_so = box.lease.get("held") == "yes"
    if says_so and (holds := _how_it_holds(box, rented, account, screen)):
        return GuardedBox(box.name, box.host_text, holds)
    if rented is None or rented.state in _ENDED:
        words = _ENDED[rented.state if rented else RentedState.GONE]
        return GuardedBox(box.name, box.host_text, words)
    if rental.is_another(rented):
        return GuardedBox(box.name, box.host_text, "its account gave that id to another rental")
    terms = terms_of(box)
    state = count_lease(box, terms, rented, account)
    over = rules.reached(terms, state)
    use: BoxLease | str = ""
    if not over and any(box.lease.get(name) for name in BY_ITS_WORD):
        use = _ask_box(box, screen)
        over = use.over if isinstance(use, BoxLease) and use.over in BY_ITS_WORD else ""
    if not over:
        return GuardedBox(box.name, box.host_text, describe_left(terms, state, use))
    return _end(box, OwnBox(account, rented), over, state, screen)


def _how_it_holds(
    box: KnownBox, rented: RentedBox | None, account: CloudAccount, screen: Screen
) -> str:
    """Say that the box still holds its lease, as far as is known; "" if its monitor or key is gone.

    Its word is believed beyond the count here, since the user may have extended or released the
    lease from another machine; but that is said, since its owner is paid for as long as it stays.
    """
    holds = "it holds its lease itself"
    if rented is None or rented.state in _ENDED:
        write_count(box, read_count(box))
        return holds
    terms = terms_of(box)
    over = rules.reached(terms, count_lease(box, terms, rented, account))
    if not over:
        return holds
    try:
        with BoxLogin.open(BoxOptions(host=box.name), screen) as login:
            lease = login.state.lease
    except BoxstrapError as error:
        why = f"it can't be asked: {error.what}"
    else:
        if lease is not None and lease.held not in rules.CAN_END:
            return ""
        why = "it says that it goes on." if lease else "it says that it has none any more."
    return (
        f"{holds}, but by the count here that is over ({over}), and {why} Unless you extended or "
        f"released it from another machine: boxstrap down --host {box.name}"
    )


def _end(
    box: KnownBox, own: OwnBox, over: str, state: rules.LeaseState, screen: Screen
) -> GuardedBox:
    account = own.account
    if box.lease.get("then") == rules.DESTROY:
        return _destroy_or_stop(box, own, over, state, screen)
    # Only the box's monitor knows what runs wrote outside the volume since the setup.
    stops = account.stop_rule(is_spot=own.box.is_spot, in_cluster=bool(own.box.cluster))
    said = _ask_box(box, screen) if stops and stops.only_volume else ""
    would_wipe = isinstance(said, BoxLease) and said.held == rules.WIPES
    if stops is None or would_wipe or _wipes(box, account):
        why = f"would keep {stops.keeps} of it" if stops else "stops no such box"
        says = f"its lease is over ({over}), and {account.title} {why}: it keeps running and "
        says += "costing. End it: boxstrap down"
        return GuardedBox(box.name, box.host_text, says, over)
    _end_runs(box, screen)
    if _is_let_go(box):
        return GuardedBox(box.name, box.host_text, _LET_GO)
    account.stop(own.box.id)
    says = f"its lease is over ({over}): stopped. It still costs {stops.costs}"
    return GuardedBox(box.name, box.host_text, says, over, stopped=True)


def _wipes(box: KnownBox, account: CloudAccount) -> bool:
    """Whether a stop would lose files outside the volume, as far as is known here."""
    volume = APIS[account.name].volume if account.name in APIS else ""
    beside = bool(volume) and not f"{box.workdir}/".startswith(f"{volume}/")
    return beside or box.lease.get("held") == rules.WIPES


def _destroy_or_stop(
    box: KnownBox, own: OwnBox, over: str, state: rules.LeaseState, screen: Screen
) -> GuardedBox:
    """Do what `down` does if nothing on the box is unsafe; else stop it, if its account can. If it
    can't, unsafe results are lost: all that can be fetched was fetched, the rest is named."""
    lost, was_seen = _bring_home(box, screen)
    if _is_let_go(box):
        return GuardedBox(box.name, box.host_text, _LET_GO)
    account, ends = own.account, f"its lease is over ({over})"
    named = "".join(f"\n  {one}" for one in lost)
    stops = account.stop_rule(is_spot=own.box.is_spot, in_cluster=bool(own.box.cluster))
    if lost and stops:
        account.stop(own.box.id)
        says = f"{ends}: stopped, since this is not safe:{named}"
        return GuardedBox(box.name, box.host_text, says, over, stopped=True, unsafe=lost)
    if not was_seen and state.over_for < _UNSEEN_S:
        says = f"{ends}, and it can't be reached:{named}\n"
        says += "It is tried again; later the box is destroyed"
        return GuardedBox(box.name, box.host_text, says, over, unsafe=lost)
    if own.box.cluster:
        says = f"{ends}. It keeps running and costing until that holds of its whole cluster, "
        says += f"{own.box.cluster}: its boxes are destroyed together"
        return GuardedBox(box.name, box.host_text, says, over, unsafe=lost, ends_with_cluster=own)
    done = end_rental(own, box, screen, lost)
    says = f"{ends}: {done.text()}"
    return GuardedBox(box.name, box.host_text, says, over, destroyed=True, unsafe=lost)


def _end_clusters(
    boxes: Sequence[KnownBox], found: Sequence[GuardedBox], screen: Screen
) -> list[GuardedBox]:
    """Destroy each cluster of whose boxes every lease is over; return what became of the boxes."""
    pairs = [*zip(boxes, found, strict=True)]
    once = Once()
    with contextlib.ExitStack() as locks:
        for box, one in pairs:
            # While its cluster's other boxes were looked at, a user may have changed their mind.
            if (
                one.ends_with_cluster
                and locks.enter_context(teardown_lock(box))
                and not _is_let_go(box)
            ):
                given_back(once).agreed.add(one.host)
        return [
            _ended(box, one, screen, once) if one.ends_with_cluster else one for box, one in pairs
        ]


def _ended(box: KnownBox, one: GuardedBox, screen: Screen, once: Once) -> GuardedBox:
    """Destroy the cluster of a box whose lease is over, if that may be."""
    assert one.ends_with_cluster is not None  # noqa: S101 - the caller has looked
    if one.host not in given_back(once).agreed:
        return one
    try:
        done = end_rental(one.ends_with_cluster, box, screen, one.unsafe, once)
    except NotSafeError:
        return one
    except BoxstrapError as error:
        says = f"its cluster was not destroyed: {error.what} It is tried again."
        return replace(one, says=says, error=error)
    says = f"its lease is over ({one.over}): {done.text()}"
    return replace(one, says=says, destroyed=True)


def _bring_home(box: KnownBox, screen: Screen) -> tuple[list[Loss], bool]:
    """End its runs and fetch what can be; return what is still unsafe, and whether it was seen."""
    known = (known_place(each.key, each.root) for each in box.repositories)
    places: list[Path | None] = [*filter(None, known)]
    lost = list[Loss]()
    try:
        for place in places or [None]:  # each gets its own; what is left then is of all of them
            options = BoxOptions(host=box.name, repo=place)
            with (
                BoxLogin.open(options, screen) as login,
                within(_BRING_HOME_S, login.cancel.cancel),
            ):
                find_own(login)  # check that it is this box
                lost = secure(login, screen, TeardownOptions(_MOST, stop_runs=True))
        return lost, True
    except CancelledError:
        late = f"what is on it did not all come home within {duration(_BRING_HOME_S)}"
        return [Loss("unseen", box.name, late)], True
    except NotSafeError:
        raise
    except BoxstrapError as error:
        return [Loss("unseen", box.name, f"what is on it: nobody could look: {error.what}")], False


def _ask_box(box: KnownBox, screen: Screen) -> BoxLease | str:
    """Return its use as its monitor counts it; else why that is unknown."""
    try:
        with BoxLogin.open(BoxOptions(host=box.name), screen) as login:
            lease = login.state.lease
    except BoxstrapError as error:
        return error.what
    is_counted = lease is not None and lease.held != LOST
    return lease if lease and is_counted else "nothing counts that on the box"


_UNSEEN_S = 1800.0
"""Seconds to keep trying to see a box that can't be stopped, before it is destroyed unseen."""
_BRING_HOME_S = 4 * 3600.0
"""Seconds that fetching what one of its repositories has may take, once its lease is over."""
_MOST = 50 * 1000**3  # limit for a run's results in bytes, as in `down`


def _end_runs(box: KnownBox, screen: Screen) -> None:
    """Ask its runs to end, each with its grace. The box is stopped even if this fails: a lease that
    waits for a login would never end."""
    try:
        with BoxLogin.open(BoxOptions(host=box.name), screen) as login:
            runs = [one for one in login.state.runs if one.goes_on or one.left]
            end_runs(login, screen, runs)
    except BoxstrapError as error:
        screen.warn(f"{box.name}: its runs could not be asked to end: {error.what}")
