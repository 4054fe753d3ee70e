"""What each provider is: its name, where its key lies, and what an account there can be asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from bootstrap.providers.api import Api
from bootstrap.providers.keys import ApiKey, KeyPlaces
from bootstrap.providers.rented import RentedBox


class CloudAccount(ABC):
    """An account of one provider. Every call raises UnreachableError and UsageError."""

    name: ClassVar[str]
    """As `--host` has it."""
    title: ClassVar[str]
    keys: ClassVar[KeyPlaces]
    address: ClassVar[str]
    """Of its API."""

    def __init__(self, key: ApiKey) -> None:
        self._api = Api(self.name, self.address, key)

    @abstractmethod
    def boxes(self) -> Sequence[RentedBox]:
        """All that the account has, those that are stopped too."""

    @abstractmethod
    def box(self, box_id: str) -> RentedBox | None:
        """One of them; None where the account has none of this id."""

    def balance(self) -> float | None:
        """Dollars left; None where the provider doesn't say."""
        return None
