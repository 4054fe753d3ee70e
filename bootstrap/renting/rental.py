"""Records of what this machine rented, or perhaps rented, written before the provider is asked.

In `rentals/MARK.json`; the mark is the box's name in its account, so that the box can be found
even if the answer was lost.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import fcntl
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bootstrap import paths
from bootstrap.link.record import all_boxes
from bootstrap.providers.offer import RentedBox
from bootstrap.sizes import dollars, duration
from bootstrap.value import Document

VERSION = 1
UNDECIDED_S = 120.0  # how long to look for a rental whose answer never arrived, in seconds
LEAVES_S = 3600.0  # how long a box that was found safe to destroy needs no second look, in seconds
SAME_PRICE = 0.015
"""Dollars an hour by which a price may differ: users agree to cents, and disks cost extra."""
NEVER_S = 600.0  # seconds after which a rental that its account doesn't list was never made
_MARK = re.compile(r"boxstrap-[0-9a-f]{12}")


class RentalState(enum.Enum):
    """What this machine knows about a rental; the value is stored in its record."""

    ASKED = "asked"  # perhaps rented: the outcome is unknown
    RENTED = "rented"
    LEAVING = "leaving"  # to be destroyed, but not known to be gone
    ENDED = "ended"


@dataclass(frozen=True)
class RentedNow(Document):
    """A box that was rented: its host for `--host`, its mark, and its price."""

    KEYS = "host=box.host, mark=box.mark, price=box.price:6, gpu=box.gpu"

    box: Rental


@dataclass(frozen=True)
class Rental(Document):
    """One rental. Times are seconds since 1970, prices dollars an hour."""

    KEYS = "**, host"

    mark: str
    provider: str
    state: RentalState = RentalState.ASKED
    asked: float = 0.0
    box_id: str = ""
    gpu: str = ""
    machine: str = ""
    price: float = 0.0
    repo_key: str = ""
    profile: str = ""
    ready: bool = False  # whether a setup of the box ever succeeded: since then it may hold work
    ended: float = 0.0  # when it ended; in state LEAVING, when that was decided
    spent: float = 0.0  # dollars from the request until it was gone, for a box that ended
    began: float = 0.0  # when it was asked for, by its account's clock; 0 if unknown
    agreed: float = 0.0  # dollars an hour that the user agreed to; 0 if unknown
    spot: bool = False  # whether the provider may take it back when others pay more
    hours: float = 0.0
    """How long its lease lets it live, from when it was asked for; 0 if unknown."""
    cluster: str = ""
    """The cluster with which it ends, as `RentedBox.cluster`; "" for none, or not known yet."""
    boxes: int = 1
    """How many boxes its order made that have no record of their own yet, itself included."""

    def is_dearer(self, price: float) -> bool:
        return 0.0 < self.agreed < price - SAME_PRICE

    @property
    def is_leaving_unused(self) -> bool:
        """Whether it was to be destroyed before a setup of it ever succeeded."""
        return self.state is RentalState.LEAVING and not self.ready

    @property
    def host(self) -> str:
        """The value for `--host`; "" if its id is unknown."""
        return f"{self.provider}:{self.box_id}" if self.box_id else ""

    def cost(self, now: float) -> float:
        return self.boxes * self.price * max(0.0, now - self.asked) / 3600

    def as_rented(self, box_id: str, now: float, account_now: float | None) -> Rental:
        """Return it as rented, with its id; `now` is the time here, `account_now` its account's."""
        since = max(0.0, now - self.asked)  # this machine's clock may have been set back
        began = 0.0 if account_now is None else round(account_now - since, 3)
        return dataclasses.replace(self, state=RentalState.RENTED, box_id=box_id, began=began)

    def over(self, now: float) -> Rental:
        spent = round(self.cost(now), 4)
        return dataclasses.replace(self, state=RentalState.ENDED, ended=now, spent=spent)


def new_mark() -> str:
    return f"boxstrap-{secrets.token_hex(6)}"


def save_rental(rental: Rental) -> None:
    """Write its record. Raises OSError."""
    record = {**dataclasses.asdict(rental), "state": rental.state.value, "v": VERSION}
    paths.write_private(_folder() / f"{rental.mark}.json", json.dumps(record, indent=1) + "\n")


def forget_rental(rental: Rental) -> None:
    """Remove the record of a rental that was never made. Raises OSError."""
    (_folder() / f"{rental.mark}.json").unlink(missing_ok=True)


def all_rentals() -> list[Rental]:
    """Return all rentals, newest first. One with an unreadable record counts as undecided."""
    files = (file for file in _folder().glob("boxstrap-*.json") if _MARK.fullmatch(file.stem))
    return sorted(map(_read, files), key=lambda rental: rental.asked, reverse=True)


def of_host(host: str) -> Rental | None:
    """Return the record of this box's rental; None if it wasn't rented from here."""
    return next((one for one in all_rentals() if one.host == host), None)


def may_be_used_since(box: Rental, now: float) -> bool:
    """Whether someone may have used the box after it was to be given back: someone logged in, or
    it was in use before and an hour has passed."""
    is_old = may_hold(box) and now - box.ended > LEAVES_S
    return is_old or any(one.host_text == box.host and one.seen > box.ended for one in all_boxes())


def may_hold(box: Rental) -> bool:
    """Whether the box may hold work: a setup succeeded, or any command has logged in."""
    return box.ready or any(one.host_text == box.host and one.seen for one in all_boxes())


def settled(rental: Rental, boxes: Sequence[RentedBox], now: float) -> Rental | None:
    """Decide a rental that was asked for, given the boxes that its account lists. None if it was
    never rented; unchanged if its account may just not list it yet."""
    found = next((box for box in boxes if box.name == rental.mark), None)
    if found is not None and found.is_unfilled:
        return rental
    if found is not None:
        return dataclasses.replace(
            rental, state=RentalState.RENTED, box_id=found.id, provider=found.provider
        )
    return None if now - rental.asked > NEVER_S else rental


def is_another(box: RentedBox) -> bool:
    """Whether the id of a box that was rented from here now belongs to another rental."""
    ours = None if box.cluster else of_host(box.host)  # a cluster's boxes have one mark
    return ours is not None and bool(_MARK.fullmatch(box.name)) and box.name != ours.mark


def note_leaving(host: str, now: float) -> None:
    """Record that the box is about to be destroyed: `up` finishes it if this command can't."""
    ours = of_host(host)
    if ours is not None and ours.state is RentalState.RENTED:
        save_rental(dataclasses.replace(ours, state=RentalState.LEAVING, ended=now))


def note_end(host: str, now: float) -> None:
    """Record that the box was destroyed now, if it was rented from here."""
    for each in all_rentals():
        if each.host == host and each.state is not RentalState.ENDED:
            save_rental(each.over(now))


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold a lock, so that two programs don't both see that nothing is rented, and rent twice."""
    folder = _folder()
    paths.make_private(folder)
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _folder() -> Path:
    return paths.state_dir() / "rentals"


def _read(file: Path) -> Rental:
    unknown = Rental(file.stem, "", asked=file.stat().st_mtime)
    record = paths.kept_record(file)
    known = {name: record.get(name, default) for name, default in vars(unknown).items()}
    try:
        state = RentalState(known.pop("state"))
    except ValueError:
        return unknown
    sound = known["mark"] == file.stem and all(
        paths.is_sound(value, getattr(unknown, name)) for name, value in known.items()
    )
    return Rental(**known, state=state) if sound else unknown


def _said(rental: Rental) -> str:
    if rental.state is RentalState.LEAVING:
        return "to be destroyed, and still there: boxstrap up tries again"
    if rental.ready:
        return "rented by boxstrap up: run it again to go on"
    return (
        "rented by boxstrap up, which is setting it up or was cut off: run it again to go on; "
        "its lease begins with the setup"
    )


@dataclass(frozen=True)
class RentedHere:
    """The hosts that were rented from here, and the rentals of which it is unknown whether they
    are there: the answer to the order was lost, or their account doesn't answer now."""

    hosts: Mapping[str, str]
    unknown: Sequence[Rental]
    now: float

    def lines(self) -> list[str]:
        return [f"{each.provider or 'somewhere'}  {self._unknown(each)}" for each in self.unknown]

    def _unknown(self, rental: Rental) -> str:
        ago = f"{duration(max(0.0, self.now - rental.asked))} ago"
        if rental.state is RentalState.ASKED:
            return (
                f"{rental.mark}  perhaps rented, {ago}: its account doesn't list it. "
                "Nothing else is rented until that is known: boxstrap up"
            )
        return (
            f"{rental.host}  rented {ago}, at {dollars(rental.price)} an hour: its account can't "
            "be asked whether it is still there"
        )


def rented_here(by_provider: Mapping[str, Sequence[RentedBox]], now: float) -> RentedHere:
    """Update the rentals by the accounts' answers; what these don't decide stays unknown."""
    everywhere = [box for boxes in by_provider.values() for box in boxes]
    for each in all_rentals():
        if each.state is RentalState.ASKED and (each.provider in by_provider or not each.provider):
            known = settled(each, by_provider.get(each.provider, everywhere), now)
            if known is None:
                if each.provider:  # if unknown, an account that didn't answer may have it
                    forget_rental(each)
            elif known != each:
                save_rental(known)
    rentals = [each for each in all_rentals() if each.state is not RentalState.ENDED]
    return RentedHere(
        {each.host: _said(each) for each in rentals if each.state is not RentalState.ASKED},
        [
            each
            for each in rentals
            if each.state is RentalState.ASKED or each.provider not in by_provider
        ],
        now,
    )


def unfinished(now: float) -> list[str]:
    """Return a sentence for each rental of which no setup ended yet: `up` may be at work on it."""
    return [
        f"{each.host or f'{each.mark}, at {each.provider},'} was ordered "
        f"{duration(max(0.0, now - each.asked))} ago by `boxstrap up`, which is at work on it or "
        "was cut off: boxstrap boxes --all shows it, and boxstrap up goes on with it"
        for each in all_rentals()
        if each.state in (RentalState.ASKED, RentalState.RENTED) and not each.ready
    ]
