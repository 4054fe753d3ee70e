"""What each provider is: its name, where its key lies, and what an account there can be asked."""

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
    """An account of one provider. Every call raises UnreachableError and UsageError.

    What changes something is asked for once; UndecidedError where nobody knows whether it was
    done, RefusedError where it wasn't. What a provider can't is said by the data below.
    """

    name: ClassVar[str]
    """As `--host` has it."""
    title: ClassVar[str]
    keys: ClassVar[KeyPlaces]
    address: ClassVar[str]
    """Of its API."""
    offers_need_key: ClassVar[bool] = True
    cant_rent: ClassVar[str] = ""
    """Why nothing is rented there; "" where it is."""
    stops: ClassVar[StopRule | None] = None
    """What stopping a box means; None where it can't be stopped."""
    final_refusals: ClassVar[Mapping[object, str]] = {402: "your balance doesn't cover it"}
    """Statuses and codes of refusals after which no other offer would do."""

    def __init__(self, key: ApiKey | None) -> None:
        self._api = Api(self.name, self.address, key)

    @property
    def answered_at(self) -> float | None:
        """When it answered last, by its own clock, seconds since 1970."""
        return self._api.answered_at

    @abstractmethod
    def boxes(self) -> Sequence[RentedBox]:
        """All that the account has, those that are stopped too."""

    @abstractmethod
    def box(self, box_id: str) -> RentedBox | None:
        """One of them; None where the account has none of this id."""

    def balance(self) -> float | None:
        """Dollars left; None where the provider doesn't say."""
        return None

    def find_mark(self, mark: str) -> Sequence[RentedBox]:
        """The boxes that were rented with this mark."""
        return [box for box in self.boxes() if box.name == mark]

    def catalog(self, order: RentOrder) -> Sequence[Offer]:
        """What is for rent of about that kind, cheapest first; it need not fit."""
        return sorted(self._catalog(order), key=lambda offer: offer.price)

    def _catalog(self, order: RentOrder) -> Sequence[Offer]:  # noqa: ARG002 - of those that rent
        return ()

    def add_key(self, public_key: str) -> None:  # noqa: B027 - most boxes are given it themselves
        """Let the account know this key, where boxes get theirs from it, before one is rented.

        Asked for again it adds nothing.
        """

    def rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        """Rent it once, called `mark`: the box's id.

        Raises NoOfferError where it is refused; UndecidedError: look for the mark, never rent again
        before.
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
        """Destroy this box; one that is gone already is as good."""

    def stop(self, box_id: str) -> None:
        """Stop this box, where `stops`."""
        raise NotImplementedError(f"{self.title} stops no box")

    def leftovers(self) -> Sequence[Leftover]:
        """What the account has beside boxes and pays for, as far as its API tells."""
        return ()
