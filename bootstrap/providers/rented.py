"""A box, as the account that pays for it has it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class RentedState(enum.Enum):
    """What an account says of a box."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    BROKEN = "broken"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class RentedBox:
    """One box of an account. Texts are as the account has them."""

    provider: str
    id: str
    name: str
    state: RentedState
    gpu: str = ""
    address: str = ""
    """Where its SSH is reached; "" where it isn't now."""
    port: int = 0
    user: str = ""
    price: float | None = None
    """Dollars an hour while it runs; None where the provider doesn't say."""
    stopped_price: float | None = None
    """Dollars an hour that it costs when it is stopped; None where the provider doesn't say."""
    since: float | None = None
    """When it was started last, seconds since 1970."""
    said: str = ""
    """What the provider says of its state, in its own words."""

    other_ways: tuple[tuple[str, int], ...] = ()
    """Addresses and ports beside that at which its SSH is reached too."""

    def ways(self) -> tuple[tuple[str, int], ...]:
        """Every address and port at which its SSH is reached now."""
        return ((self.address, self.port), *self.other_ways) if self.address else ()

    @property
    def host(self) -> str:
        """What `--host` takes for it."""
        return f"{self.provider}:{self.id}"

    def price_now(self) -> float | None:
        """Dollars an hour in the state that it is in."""
        return self.stopped_price if self.state is RentedState.STOPPED else self.price
