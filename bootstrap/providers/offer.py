"""A rental order, and what a provider has for rent."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bootstrap.text.sizes import dollars

_TOLERANCE = 0.96
"""A card sold with 24 GB shows 23.99 GiB or less."""


@dataclass(frozen=True)
class RentOrder:
    """What the profile orders; None or "" means any."""

    gpu_name: str = ""
    """Part of the GPU's name."""
    gpu_count: int = 1
    min_memory_gib: float | None = None
    min_cuda: str = ""
    image: str = ""
    """If empty, the provider's own image for training."""
    disk_gb: int = 50
    volume: str = ""
    """The id of a volume that the account already has."""
    volume_at: str = "/workspace"
    spot: bool = False
    region: str = ""
    max_price: float | None = None
    """Dollars an hour, disk included."""


@dataclass(frozen=True)
class Offer:
    """One box for rent. A field is None if the provider doesn't say."""

    provider: str
    id: str
    gpu: str
    gpu_count: int
    price: float
    """Dollars an hour, with the order's disk if the provider says what that costs."""
    bid: float | None = None
    """The bid for it, if a higher bid may take it away."""
    memory_gib: float | None = None
    """Of each GPU."""
    max_cuda: str = ""
    reliability: float | None = None
    """From 0 to 1."""
    down_mbps: float | None = None
    up_mbps: float | None = None
    region: str = ""
    machine: str = ""
    """The machine, as exactly as the provider names it: one machine is not tried twice."""
    disk_gb: float | None = None
    """The largest disk that it can have."""

    def misses(self, order: RentOrder) -> list[str]:
        """Return what the order asks for and this offer lacks."""
        found = list[str]()
        if _normalized(order.gpu_name) not in _normalized(self.gpu):
            found.append(f"no {order.gpu_name}")
        if self.gpu_count != order.gpu_count:
            found.append(f"{self.gpu_count} GPUs, not {order.gpu_count}")
        if _is_less(self.memory_gib, order.min_memory_gib, _TOLERANCE):
            found.append(f"{self.memory_gib:g} GiB each, not {order.min_memory_gib:g}")
        if self.max_cuda and order.min_cuda and _version(self.max_cuda) < _version(order.min_cuda):
            found.append(f"CUDA {self.max_cuda}, not {order.min_cuda}")
        if _is_less(self.disk_gb, order.disk_gb):
            found.append(f"{self.disk_gb:.0f} GB of disk, not {order.disk_gb}")
        if order.region and not re.search(
            rf"(?<![a-z]){re.escape(order.region.lower())}(?![a-z])", self.region.lower()
        ):
            found.append(f"in {self.region or 'an unknown region'}, not {order.region}")
        if order.max_price is not None and self.price > order.max_price:
            found.append(f"{dollars(self.price - order.max_price)} an hour too expensive")
        return found

    def exceeds(self, order: RentOrder) -> list[str]:
        """Return what it has beyond the order, and what is paid for as well."""
        memory, asked = self.memory_gib, order.min_memory_gib
        more = memory is not None and asked is not None and memory > asked * 1.1
        return [f"{memory:g} GiB each for {asked:g}"] if more else []


@dataclass(frozen=True)
class StopRule:
    """What stopping a box means at a provider."""

    keeps: str
    costs: str
    """What a stopped box still costs."""
    only_volume: bool = False
    """Whether it keeps only the volume that the box was rented with."""


@dataclass(frozen=True)
class Leftover:
    """Something that an account has besides boxes, and pays for."""

    provider: str
    id: str
    name: str
    kind: str
    """The provider's name for such a thing."""
    size_gb: float | None = None
    price: float | None = None
    """Dollars an hour; None if the provider doesn't say."""


def _normalized(name: str) -> str:
    """Normalize a GPU's name: providers write RTX_4090, rtx4090 and RTX 4090."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _is_less(has: float | None, asked: float | None, tolerance: float = 1.0) -> bool:
    return has is not None and asked is not None and has < asked * tolerance


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))
