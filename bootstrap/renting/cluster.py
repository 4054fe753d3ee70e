"""Clusters: boxes that one request made, and that their provider only destroys together.

So nothing of a cluster is destroyed while one of its boxes may hold work, unless one command found
of that box that nothing would be lost, or its lease is over.
"""

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Collection, Iterator, Sequence

from bootstrap.errors import NotSafeError
from bootstrap.link.record import all_boxes
from bootstrap.link.target import AT_ONCE
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import RentedBox, RentedState
from bootstrap.renting import rental
from bootstrap.renting.rental import Rental, RentalState, may_be_used_since


def others_of(account: CloudAccount, box: RentedBox) -> list[RentedBox]:
    """Return the other boxes of its cluster that are there now. Raises as `CloudAccount.boxes`."""
    if not box.cluster:
        return []
    return [
        each
        for each in account.boxes()
        if each.cluster == box.cluster
        and each.id not in (box.id, each.cluster)
        and each.state is not RentedState.GONE
    ]


def holding(
    others: Sequence[RentedBox], now: float, named: Collection[str] = ()
) -> list[RentedBox]:
    """Return those that may hold work: all but what was rented from here and never logged in to,
    and what is being destroyed; and those in `named`, by their names or hosts."""
    rentals = {each.host: each for each in rental.all_rentals()}
    marks = {each.mark for each in rentals.values() if each.state is not RentalState.ENDED}
    names = {box.host_text: box.name for box in all_boxes()}

    def may_go(box: RentedBox) -> bool:
        ours = rentals.get(box.host)
        if ours is not None and ours.state is RentalState.LEAVING:
            return not may_be_used_since(ours, now)
        is_ours = not ours.ready if ours is not None else box.name in marks
        return is_ours and box.host not in names

    return [
        each for each in others if {each.host, names.get(each.host)} & {*named} or not may_go(each)
    ]


def refuse_holding(box: RentedBox, held: Sequence[RentedBox], but: Collection[str] = ()) -> None:
    """Raise NotSafeError if any of those that may hold work is not in `but`: names or hosts."""
    names = {each.host_text: each.name for each in all_boxes()}
    missing = [one.host for one in held if not {one.host, names.get(one.host)} & {*but}]
    if not missing:
        return
    every = " ".join(f"--host {names.get(each.host, each.host)}" for each in (box, *held))
    raise NotSafeError(
        f"it was not destroyed: it is of the cluster {box.cluster}, whose boxes are destroyed "
        f"together, and this command has not found that nothing would be lost on "
        f"{', '.join(missing)}.",
        where=names.get(box.host, box.host),
        hint=f"It keeps running and costing. To give back all of them: boxstrap down {every}",
    )


def others_to_end(
    account: CloudAccount, box: RentedBox | None, now: float, agreed: Collection[str] = ()
) -> list[RentedBox]:
    """Return the other boxes that are destroyed with it, as they are listed now. Raises
    NotSafeError if one that isn't in `agreed` may hold work; as `CloudAccount.boxes`."""
    if box is None:
        return []
    others = others_of(account, box)
    refuse_holding(box, holding(others, now), agreed)
    return others


def still_there(box: Rental, account: CloudAccount) -> RentedBox | None:
    """Return its box; if that is gone, another one that the same order made and that has no record
    of its own. Raises as `CloudAccount.box`."""
    found = account.box(box.box_id)
    if found is not None and found.state is not RentedState.GONE:
        return found
    return next(iter(account.find_mark(box.mark)), None) if box.boxes > 1 else None


def note_members(ours: Rental, account: CloudAccount, box: RentedBox) -> Rental:
    """Record the other boxes of a cluster that was rented as `ours`, and return that with its
    cluster. Raises as `CloudAccount.boxes`."""
    if not box.cluster:
        return ours
    others = sorted(others_of(account, box), key=lambda each: each.id)
    with rental.one_at_a_time():
        known = {each.host: each for each in rental.all_rentals()}
        now = known.get(ours.host)
        if now is None or now.state is not RentalState.RENTED:  # another command ends it
            return ours
        ours = dataclasses.replace(ours, cluster=box.cluster, boxes=1)
        rental.save_rental(ours)
        for at, each in enumerate((one for one in others if one.host not in known), start=1):
            member = dataclasses.replace(ours, mark=rental.new_mark(), box_id=each.id, ready=False)
            # Later by a moment, so that the first one stays the first.
            rental.save_rental(dataclasses.replace(member, asked=ours.asked + at / 1000))
    return ours


class GivenBack:
    """The boxes that one command gives back, each in its thread: where those of a cluster wait
    until nothing on any of them would be lost."""

    def __init__(self, boxes: int) -> None:
        self._left = boxes
        self._waits = list[tuple[set[str], set[str]]]()
        """What each thread that waits wants to be safe, and what is."""
        self._safe = (set[str](), set[str]())
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

    def await_others(
        self, box: RentedBox, held: Sequence[RentedBox], look_again: Callable[[], object]
    ) -> None:
        """Return once nothing would be lost on any box of its cluster.

        `held`: the others that may hold work. `look_again` is called once all were looked at, which
        may have taken hours, and raises if something would be lost now. Raises NotSafeError if that
        of any other one isn't found by this command.
        """
        self._meet(box, held, self._safe[0])
        look_again()
        self._meet(box, held, self._safe[1])

    @property
    def agreed(self) -> set[str]:
        """Hosts on which nothing would be lost, or that may go all the same."""
        return self._safe[1]

    def _meet(self, box: RentedBox, held: Sequence[RentedBox], safe: set[str]) -> None:
        wait = {each.host for each in held}, safe
        with self._changed:
            safe.add(box.host)
            self._waits.append(wait)
            self._changed.notify_all()
            while not wait[0] <= safe and self._stuck() < min(self._left, AT_ONCE):
                self._changed.wait()
            self._waits.remove(wait)
            agreed = {*safe}
        refuse_holding(box, held, agreed)

    def _stuck(self) -> int:
        """Return how many wait for another one: not those that are about to go on."""
        return sum(not wanted <= safe for wanted, safe in self._waits)
