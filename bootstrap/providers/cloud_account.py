"""The base class of providers: name, places of the API key, and requests to an account."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from bootstrap.errors import NoOfferError
from bootstrap.providers.api import Api, RefusedError
from bootstrap.providers.keys import ApiKey, KeyPlaces
from bootstrap.providers.offer import Leftover, Offer, RentOrder, StopRule
from bootstrap.providers.rented import RentedBox


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
    cant_rent: ClassVar[str] = ""
    """Why boxstrap can't rent there; "" if it can."""
    stops: ClassVar[StopRule | None] = None
    """What stopping a box means; None if it can't be stopped."""
    final_refusals: ClassVar[Mapping[object, str]] = {402: "your balance doesn't cover it"}
    """Statuses and codes of refusals after which any other offer would be refused too."""

    def __init__(self, key: ApiKey | None) -> None:
        self._api = Api(self.name, self.address, key)

    @property
    def answered_at(self) -> float | None:
        """When the API last answered, by its own clock (seconds since 1970)."""
        return self._api.answered_at

    @abstractmethod
    def boxes(self) -> Sequence[RentedBox]:
        """Return all boxes of the account, including stopped ones."""

    @abstractmethod
    def box(self, box_id: str) -> RentedBox | None:
        """Return one box; None if the account has none with this id."""

    def balance(self) -> float | None:
        """Return the dollars left; None if the provider doesn't say."""
        return None

    def find_mark(self, mark: str) -> Sequence[RentedBox]:
        """Return the boxes that were rented with this mark."""
        return [box for box in self.boxes() if box.name == mark]

    def catalog(self, order: RentOrder) -> Sequence[Offer]:
        """Return offers of about that kind, cheapest first; they need not fit the order."""
        return sorted(self._catalog(order), key=lambda offer: offer.price)

    def _catalog(self, order: RentOrder) -> Sequence[Offer]:  # noqa: ARG002 - of those that rent
        return ()

    def add_key(self, public_key: str) -> None:  # noqa: B027 - most boxes are given it themselves
        """Add a public key to the account before renting, if boxes get their keys from it.

        A key that is already there is not added again.
        """

    def rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        """Rent an offer once, named `mark`; return the box's id.

        Raises NoOfferError if it is refused. After an UndecidedError, look for the mark before you
        rent again.
        """
        try:
            return self._rent(offer, order, mark, public_key)
        except RefusedError as refused:
            words: tuple[object, ...] = (refused.status, refused.code)
            final = next((word for word in words if word in self.final_refusals), None)
            why = "" if final is None else f" {self.final_refusals[final]}."
            error = NoOfferError(f"{refused.what}{why}", where=self.name)
            error.is_final = final is not None
            raise error from None

    def _rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        raise NotImplementedError(self.cant_rent)

    @abstractmethod
    def destroy(self, box_id: str) -> None:
        """Destroy this box; one that is already gone is no error."""

    def stop(self, box_id: str) -> None:
        """Stop this box; only if `stops` is set."""
        raise NotImplementedError(f"{self.title} stops no box")

    def leftovers(self) -> Sequence[Leftover]:
        """Return what the account pays for besides boxes, as far as its API shows."""
        return ()
