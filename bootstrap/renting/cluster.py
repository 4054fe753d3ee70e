"""Clusters: boxes that one request made, and that their provider only destroys together.

So nothing of a cluster is destroyed unless each of its boxes may be: one command found of all that
nothing would be lost, or the leases of all are over, or none was ever used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator, Sequence

from bootstrap.errors import NotSafeError
from bootstrap.link.record import all_boxes
from bootstrap.link.target import AT_ONCE
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import RentedBox, RentedState
from bootstrap.renting import rental
from bootstrap.renting.rental import Rental, RentalState, may_be_used_since, may_hold


def others_of(account: CloudAccount, box: RentedBox) -> list[RentedBox]:
    """Return the other boxes of its cluster that are still there; none if it is of no cluster.

    Raises as `CloudAccount.boxes`.
    """
    if not box.cluster:
        return []
    return [
        each
        for each in account.boxes()
        if each.cluster == box.cluster
        and each.id not in (box.id, each.cluster)
        and each.state is not RentedState.GONE
    ]


def kept_by(box: Rental, now: float) -> list[str]:
    """Return the hosts of the other boxes of a cluster that was rented from here which may hold
    work: each that was ever used, if it isn't being destroyed."""
    return [
        each.host
        for each in rental.all_rentals()
        if box.cluster == each.cluster != "" and each.mark != box.mark and not _may_go(each, now)
    ]


def _may_go(box: Rental, now: float) -> bool:
    if box.state is RentalState.LEAVING:
        return not may_be_used_since(box, now)
    return box.state is RentalState.ENDED or not may_hold(box)


def note_members(ours: Rental, account: CloudAccount, box: RentedBox) -> Rental:
    """Record the other boxes of a cluster that was rented as `ours`, and return that with its
    cluster. Raises as `CloudAccount.boxes`."""
    if not box.cluster:
        return ours
    ours = dataclasses.replace(ours, cluster=box.cluster)
    rental.save_rental(ours)
    known = {each.host for each in rental.all_rentals()}
    new = [each for each in others_of(account, box) if each.host not in known]
    for at, each in enumerate(sorted(new, key=lambda one: one.id), start=1):
        member = dataclasses.replace(ours, mark=rental.new_mark(), box_id=each.id, ready=False)
        # Later by a moment, so that the first one stays the first.
        rental.save_rental(dataclasses.replace(member, asked=ours.asked + at / 1000))
    return ours


class GivenBack:
    """The boxes that one command gives back, each in its thread: where those of a cluster wait
    until nothing on any of them would be lost."""

    def __init__(self, boxes: int) -> None:
        self._left = boxes
        self._waiting = 0
        self._safe = set[str]()
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def attended(self) -> Iterator[None]:
        """Take part: when this is left, with or without an error, nobody waits for it any more."""
        try:
            yield
        finally:
            with self._changed:
                self._left -= 1
                self._changed.notify_all()

    def await_others(self, box: RentedBox, others: Sequence[RentedBox]) -> None:
        """Return once nothing would be lost on any box of its cluster. Raises NotSafeError if that
        is not found of each by this command."""
        wanted = {each.host for each in others}
        with self._changed:
            self._safe.add(box.host)
            self._waiting += 1
            self._changed.notify_all()
            while not wanted <= self._safe and self._waiting < min(self._left, AT_ONCE):
                self._changed.wait()
            self._waiting -= 1
            missing = sorted(wanted - self._safe)
        if missing:
            raise _together(box, others, missing)


def refuse_alone(box: RentedBox, others: Sequence[RentedBox]) -> None:
    """Raise NotSafeError if there are others in its cluster, as a command is about it alone."""
    if others:
        raise _together(box, others, [each.host for each in others])


def _together(box: RentedBox, others: Sequence[RentedBox], missing: Sequence[str]) -> NotSafeError:
    names = {each.host_text: each.name for each in all_boxes()}
    hosts = [box.host, *(each.host for each in others)]
    named = " ".join(f"--host {names.get(each, each)}" for each in hosts)
    return NotSafeError(
        f"it was not destroyed: it is of the cluster {box.cluster}, whose boxes are destroyed "
        f"together, and {', '.join(missing)} may not be yet.",
        where=names.get(box.host, box.host),
        hint=f"It keeps running and costing. To give back all of them: boxstrap down {named}",
    )
