"""The base class of providers: name, places of the API key, and requests to an account."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar

from bootstrap.errors import BoxstrapError, NoOfferError, UnreachableError, UsageError
from bootstrap.providers import api
from bootstrap.providers.api_key import ApiKey, KeyPlaces
from bootstrap.providers.offer import Leftover, Offer, RentedBox, RentedState, RentOrder, StopRule
from bootstrap.sizes import dollars

_CLEARS_S = (2.0, 4.0, None)
"""Seconds before it is tried again to delete what a failed rental left; None: it is not."""


class CloudAccount(ABC):
    """An account at one provider. Every call raises UnreachableError and UsageError.

    A change is requested once. It raises UndecidedError if nobody knows whether it was done, and
    RefusedError if it wasn't. The data below says what a provider can't do.
    """

    name: ClassVar[str]
    """As in `--host`."""
    title: ClassVar[str]
    keys: ClassVar[KeyPlaces]
    address: ClassVar[str]
    """The base URL of its API."""
    offers_need_key: ClassVar[bool] = True
    is_ambient: ClassVar[bool] = False
    """Whether its key may be there for other purposes: nothing is rented there unless it is
    named."""
    keys_page: ClassVar[str] = ""
    """Where the user must have put their public key, if nothing else can."""
    rents_stopped: ClassVar[bool] = False
    """Whether a box is rented without being started, as nothing else says what it will cost."""
    stops: ClassVar[StopRule | None] = None
    """What stopping a box means; None if it can't be stopped."""
    stops_spot: ClassVar[bool] = True
    """Whether `stops` holds of a spot box, too; else it can't be stopped."""
    destroys_itself: ClassVar[bool] = True
    """Whether a box that ends itself may be destroyed by that, too; else it is only stopped."""
    is_container: ClassVar[bool] = False
    """Whether its boxes are containers, in which no other container or Kubernetes runs."""
    no_private_network: ClassVar[str] = ""
    """Why boxes there can't train together (`train.nodes`); "" if they may have a network."""
    shares_network: ClassVar[bool] = False
    """Whether boxes of one machine type and place can be rented into one network
    (`RentOrder.network`)."""
    rents_clusters: ClassVar[bool] = False
    """Whether such a network is a cluster: its boxes are made by one request (`RentOrder.boxes`),
    can't be stopped, and are only destroyed together."""
    loading_minutes: ClassVar[int] = 15
    """How long a box there may take until it can be reached."""
    refusals: ClassVar[Mapping[object, api.Refusal]] = {
        402: api.Refusal("your balance doesn't cover it"),
        api.TAKEN: api.NONE_LEFT,
    }
    """What its statuses and codes mean. A code's last word is enough (`a/b/CODE`)."""

    def __init__(self, key: ApiKey | None) -> None:
        self._api = api.Api(self.name, self.address, key)
        self._api.refusals = self.refusals

    @classmethod
    def no_key(cls, host: str, purpose: str = "") -> UsageError:
        """Return the error for a key that isn't there, or a package that asks with it."""
        if cls.keys.missing:
            return UsageError(
                f"asking {cls.title} needs a package that isn't installed.",
                where=host,
                hint=f"Install it: {cls.keys.missing}",
            )
        return UsageError(
            f"there is no key of your account at {cls.title}{purpose}.",
            where=host,
            hint=f"Put it into {cls.keys}. It stays on this machine.",
        )

    @property
    def has_key(self) -> bool:
        """Whether there is a key, so that more than what is public can be asked."""
        return self._api.has_key

    @property
    def answered_at(self) -> float | None:
        """When the API last answered, by its own clock (seconds since 1970)."""
        return self._api.answered_at

    @abstractmethod
    def boxes(self) -> Sequence[RentedBox]:
        """Return all boxes of the account, including stopped ones. Raises PartialListError, with
        the others, where a part of it can't be asked."""

    def box(self, box_id: str) -> RentedBox | None:
        """Return one box; None if the account has none with this id, nor lists it."""
        one = self._box(box_id)
        if one is None or one.state is RentedState.GONE:
            alive = (box for box in self._around(box_id) if box.state is not RentedState.GONE)
            return next((box for box in alive if box.id == box_id), one)
        return one

    def _around(self, box_id: str) -> Sequence[RentedBox]:  # noqa: ARG002 - of those with places
        """Return the boxes of the place that a box's id names; of the account, if it names none."""
        return self.boxes()

    def _unless_away(
        self, boxes: Sequence[RentedBox], away: Mapping[str, UnreachableError]
    ) -> Sequence[RentedBox]:
        """Return the boxes of a list. Raises PartialListError with them if places are `away`."""
        if not away:
            return boxes
        error = api.PartialListError(
            f"its list leaves out {', '.join(sorted(away))}: {next(iter(away.values())).what}",
            where=self.name,
            hint=f"A box whose id names another place is found there: --host {self.name}:ID",
        )
        error.boxes = boxes
        raise error

    @abstractmethod
    def _box(self, box_id: str) -> RentedBox | None:
        """Return one box; None if the API says that there is none."""

    def balance(self) -> float | None:
        """Return the dollars left; None if the provider doesn't say."""
        return None

    def increases(self) -> Mapping[str, float]:
        """Return the dollars an hour more that hosts ask for, by the box's id."""
        return {}

    def log(self, box_id: str) -> Sequence[str]:  # noqa: ARG002 - of those that have one
        """Return the last lines of the provider's own log of a box; may raise."""
        return ()

    @classmethod
    def volume_place(cls, order: RentOrder) -> str:
        """Return where the ordered volume is mounted."""
        return order.volume_at

    def find_mark(self, mark: str) -> Sequence[RentedBox]:
        """Return the boxes that were rented with this mark."""
        return [box for box in self.boxes() if box.name == mark]

    def catalog(self, order: RentOrder) -> Sequence[Offer]:
        """Return offers of about that kind, cheapest first; they need not fit the order. What has
        no price yet is none."""
        priced = (offer for offer in self._catalog(order) if offer.price > 0)
        return sorted(priced, key=lambda offer: offer.price)

    @abstractmethod
    def _catalog(self, order: RentOrder) -> Sequence[Offer]:
        """Return the same, in any order."""

    def add_key(self, public_key: str) -> None:  # noqa: B027 - most boxes are given it themselves
        """Add a public key to the account before renting, if boxes get their keys from it. A key
        that is already there is not added again."""

    def rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        """Rent an offer once, named `mark`; return the box's id. Raises NoOfferError if it is
        refused. After an UndecidedError, look for the mark before you rent again."""
        try:
            return self._rent(offer, order, mark, public_key)
        except api.RefusedError as refused:
            last = refused.code.rpartition("/")[2]
            words: tuple[object, ...] = (refused.code, last, refused.status)
            found = (self.refusals[word] for word in words if word in self.refusals)
            known = next(found, api.Refusal(is_final=False, may_pass=None))
            left = self._left() if known.is_final else ""
            why = f" {known.means}{left}." if known.means else ""
            error = NoOfferError(f"{refused.what}{why}", where=self.name, is_final=known.is_final)
            error.may_pass = known.may_pass
            raise error from None

    def _left(self) -> str:
        """Return what is left of the balance, for an error; "" if nobody says."""
        with contextlib.suppress(BoxstrapError):
            left = self.balance()
            return "" if left is None else f" ({dollars(left)} left)"
        return ""

    @abstractmethod
    def _rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        """Rent it once; return its id. Raises RefusedError, UndecidedError."""

    @contextlib.contextmanager
    def _before_rental(self, what: str, then: str = "Nothing was rented.") -> Iterator[None]:
        """Set up `what` a box needs: an unknown answer to that is of no rental, and no doubt."""
        try:
            yield
        except api.UndecidedError as error:
            raise UnreachableError(
                f"{what} could not be set up: {error.what} {then}",
                where=self.name,
                hint="Run the same command again.",
            ) from None

    def _clear(self, delete: Callable[[], None], left: str) -> None:
        """Delete what a rental that failed `left`. Raises UndecidedError if it may cost."""
        for pause in _CLEARS_S:
            try:
                delete()
            except UnreachableError as error:
                if pause is None:
                    raise api.UndecidedError(
                        f"it could not make a box, and perhaps left parts of one: {error.what}",
                        where=self.name,
                        hint=f"Look for {left}, on the provider's own page.",
                    ) from None
                self._api.pause(pause)
            else:
                return

    @abstractmethod
    def destroy(self, box_id: str) -> None:
        """Destroy this box; one that is already gone is no error."""

    def destroy_cluster(self, cluster: str) -> None:
        """Destroy a cluster with all its boxes; only if `rents_clusters`. One that is already gone
        is no error."""
        raise NotImplementedError(f"{self.title} has no clusters")

    def stop(self, box_id: str) -> None:
        """Stop this box; only if `stops` is set."""
        raise NotImplementedError(f"{self.title} stops no box")

    def start(self, box_id: str) -> None:
        """Start this stopped box; only if `stops` is set. It may have to wait for its GPUs."""
        raise NotImplementedError(f"{self.title} starts no box")

    def is_gone(self, box_id: str) -> bool:
        """Whether the account no longer has the box, by its id and in the whole list."""
        one = self.box(box_id)
        return one is None or one.state is RentedState.GONE

    @classmethod
    def stop_rule(cls, *, is_spot: bool | None, in_cluster: bool = False) -> StopRule | None:
        """Return what stopping such a box means; None if it can't be stopped."""
        return None if in_cluster or (is_spot and not cls.stops_spot) else cls.stops

    def let_in(self, box_id: str) -> bool:  # noqa: ARG002 - most boxes let in whoever has the key
        """Let this machine's address in, where others are kept out; return whether it wasn't."""
        return False

    @property
    def lets_in(self) -> str:
        """The addresses that its last box lets in; "" if it lets in whoever has the key."""
        return ""

    def leftovers(self) -> Sequence[Leftover]:
        """Return what the account pays for besides boxes, as far as its API shows."""
        return ()


def no_volume(provider: str, volume: str) -> UsageError:
    return UsageError(
        f"your account has no volume {volume}.",
        where=provider,
        hint="Name one that it has in box.volume, or none.",
    )
