"""The boxes that the user's accounts pay for, with what this machine knows of them."""

import contextlib
import dataclasses
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from bootstrap.errors import BoxstrapError
from bootstrap.link.record import KnownBox, all_boxes
from bootstrap.providers import FIXED_END, ONLY_END, STOPPED_END, place_of
from bootstrap.providers.accounts import PROVIDERS, blaming, find_account, no_keys
from bootstrap.providers.api import PartialListError, RefusedKeyError
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import RentedBox, RentedState
from bootstrap.sanitize import sanitize
from bootstrap.sizes import duration
from bootstrap.ui.layout import aligned
from bootstrap.value import Document

_UNMANAGED = "not known on this machine: boxstrap does not manage it"
_SOON_S = 7 * 86400.0  # a contract that ends within this time is shown


@dataclass(frozen=True)
class AccountAnswer(Document):
    """The answer of one account, or the `error` if it did not answer, or left something out."""

    KEYS = "provider=provider.name, balance, error=error.what"

    provider: type[CloudAccount]
    boxes: Sequence[RentedBox] = ()
    balance: float | None = None
    error: BoxstrapError | None = None


@dataclass(frozen=True)
class BilledBox(Document):
    """A box that an account is billed for; `known_as`: its name here; `rented_here`: what `up`
    did with it, "" for one that was not rented from here."""

    KEYS = (
        "host=box.host, name=box.name, state=box.state, gpu=box.gpu, address=box.address, "
        "port=box.port, price=box.price, stopped_price=box.stopped_price, since=box.since, "
        "ends=box.ends, price_increase=box.increase, spot=box.is_spot, spent, known_as, rented_here"
    )

    box: RentedBox
    now: float
    known_as: str
    rented_here: str

    @property
    def spent(self) -> float | None:
        """The dollars spent since it was started; earlier time and traffic are unknown."""
        box = self.box
        if box.price is None or box.since is None or box.state is not RentedState.RUNNING:
            return None
        return round(box.price * max(0.0, self.now - box.since) / 3600, 4)

    def cells(self) -> tuple[str, ...]:
        box, price = self.box, self.box.price_now()
        is_stopped = box.state is RentedState.STOPPED
        known = f"known as {self.known_as}" if self.known_as else self.rented_here or _UNMANAGED
        return (
            box.host,
            sanitize(box.name) or "-",
            sanitize(box.gpu) or "-",
            box.state.value,
            "price unknown" if price is None else f"{_dollars(price)}/h",
            f"for {duration(max(0.0, self.now - box.since))}"
            if box.since and not is_stopped
            else "",
            "" if self.spent is None else f"about {_dollars(self.spent)} so far",
            ", ".join([known, *contract_words(box, self.now)]),
        )


@dataclass(frozen=True)
class RentedBoxes(Document):
    """All accounts that a key was found for, and the boxes known on this machine."""

    KEYS = "accounts, boxes, price"

    accounts: Sequence[AccountAnswer]
    known: Sequence[KnownBox]
    now: float
    rented_here: Mapping[str, str] = field(default_factory=dict)
    """Hosts that `up` rented from here, with the words to show for one that has no setup yet."""

    def text(self, unknown: Sequence[str] = ()) -> str:
        """A line for each box, the error or balance of each account, and what isn't known."""
        lines = aligned([box.cells() for box in self.boxes])
        if not lines and not unknown and not any(account.error for account in self.accounts):
            lines = ["nothing is rented"]
        elif self.price is not None:
            lines += ["", f"all of it costs {_dollars(self.price)} an hour{self._unpriced()}"]
        for account in self.accounts:
            if account.error:
                lines.append(f"{account.provider.title}: {account.error.what}")
            elif account.balance is not None:
                lines.append(f"{account.provider.title}: {_dollars(account.balance)} left")
        return "\n".join([*lines, *unknown])

    def raise_for_status(self) -> None:
        """Raise an account's error: without it the list is incomplete. UsageError without a key."""
        if not self.accounts:
            raise no_keys(PROVIDERS.values())
        if error := next((account.error for account in self.accounts if account.error), None):
            raise error

    @property
    def boxes(self) -> list[BilledBox]:
        every = [box for account in self.accounts for box in account.boxes]
        at = self.rented_here
        return [BilledBox(b, self.now, self._known_as(b), at.get(b.host, "")) for b in every]

    def _known_as(self, box: RentedBox) -> str:
        named = next((one for one in self.known if one.host_text == box.host), None)
        if named is None and box.address:
            place = place_of(box.address, box.port, box.user)
            at = (one for one in self.known if place_of(one.address, one.port, one.user) == place)
            named = next(
                (one for one in at if one.host_text.partition(":")[0] not in PROVIDERS), None
            )
        return named.name if named else ""

    @property
    def price(self) -> float | None:
        """Dollars an hour of all of them, as far as known; None if none is."""
        prices = [box.price_now() for account in self.accounts for box in account.boxes]
        told = [price for price in prices if price is not None]
        return round(sum(told), 4) if told else None

    def _unpriced(self) -> str:
        every = [box for account in self.accounts for box in account.boxes]
        count = sum(box.price_now() is None for box in every if box.state is not RentedState.GONE)
        return f", and {count} with unknown price" if count else ""


def contract_words(box: RentedBox, now: float) -> list[str]:
    """Return when its host's contract ends, if that is near, and what is asked for then."""
    left = None if box.ends is None else max(0.0, box.ends - now)
    told = []
    if left is not None and (left < _SOON_S or box.increase):
        does = "stops" if box.provider in STOPPED_END else "deletes"
        fixed = "its job ends" if box.provider in ONLY_END else f"its provider {does} it"
        what = fixed if box.provider in FIXED_END else "its contract ends"
        told = [f"{what} in {duration(left)}"]
    if box.increase:
        told += [f"its host asks {_dollars(box.increase)}/h more, to be accepted there"]
    return told


def with_contract(host: str) -> RentedBox | None:
    """Return a box by its id as its account lists it, with what its host asks for; None if there
    is no key, no answer, or no such box."""
    name, _, box_id = host.partition(":")
    with contextlib.suppress(BoxstrapError):
        account = find_account(name)
        box = account.box(box_id) if account else None
        return _with_increases(account, [box])[0] if account and box else None
    return None


def _with_increases(account: CloudAccount, boxes: Sequence[RentedBox]) -> list[RentedBox]:
    more = dict[str, float]()
    if any(box.ends for box in boxes):
        with contextlib.suppress(BoxstrapError):  # the list of boxes is what counts
            more = dict(account.increases())
    return [dataclasses.replace(box, increase=more.get(box.id)) for box in boxes]


def ask_accounts() -> RentedBoxes:
    """Ask all accounts with a key on this machine in parallel; a failed one hides no other."""
    with ThreadPoolExecutor(len(PROVIDERS)) as pool:
        answers = list(pool.map(_ask, PROVIDERS.values()))
    return RentedBoxes([each for each in answers if each], all_boxes(), time.time())


def _ask(provider: type[CloudAccount]) -> AccountAnswer | None:
    try:
        with blaming(provider):
            account = find_account(provider.name)
            if account is None:
                return None
            left_out = None
            try:
                found = account.boxes()
            except PartialListError as error:
                found, left_out = error.boxes, error
            boxes = _with_increases(account, found)
            return AccountAnswer(provider, boxes, account.balance(), left_out)
    except BoxstrapError as error:
        # A key that is there for other purposes may do nothing with boxes.
        is_unused = provider.is_ambient and isinstance(error, RefusedKeyError)
        if is_unused and not any(
            box.host_text.startswith(f"{provider.name}:") for box in all_boxes()
        ):
            return None
        return AccountAnswer(provider, error=error)


def _dollars(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 0.1 or not amount else f"${amount:.3f}"
