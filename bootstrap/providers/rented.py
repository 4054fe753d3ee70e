"""A rented box, as its account describes it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class RentedState(enum.Enum):
    """The state of a box, by its account."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    BROKEN = "broken"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class RentedBox:
    """One box of an account. Texts are the account's own, unchanged."""

    provider: str
    id: str
    name: str
    state: RentedState
    gpu: str = ""
    address: str = ""
    """Where its SSH is reached; "" if it can't be reached now."""
    port: int = 0
    user: str = ""
    price: float | None = None
    """Dollars an hour while it runs; None if the provider doesn't say."""
    stopped_price: float | None = None
    """Dollars an hour while it is stopped; None if the provider doesn't say."""
    since: float | None = None
    """When it was last started, in seconds since 1970."""
    said: str = ""
    """What the provider says about its state, in its own words."""

    other_ways: tuple[tuple[str, int], ...] = ()
    """Further addresses and ports at which its SSH is reached."""

    def ways(self) -> tuple[tuple[str, int], ...]:
        """Return every address and port at which its SSH is reached now."""
        return ((self.address, self.port), *self.other_ways) if self.address else ()

    @property
    def host(self) -> str:
        """What `--host` takes for it."""
        return f"{self.provider}:{self.id}"

    def price_now(self) -> float | None:
        """Return the dollars an hour in its current state."""
        return self.stopped_price if self.state is RentedState.STOPPED else self.price
