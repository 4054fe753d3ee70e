"""A rental order, what a provider has for rent, and a rented box as its account describes it."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from bootstrap.onbox.verdict import gpu_models
from bootstrap.sizes import dollars
from bootstrap.value import Document

LEASE_HOURS = 24  # hours for a rented box whose profile's lease has neither hours nor dollars
AFTER_LEASE_S = 1800
"""Seconds from a lease's end to the end that a provider itself puts to its box, where it does: in
them, what is not safe can still be fetched."""
KEYS = (
    *("gpu.name", "gpu.count", "gpu.min_memory_gib", "gpu.min_cuda", "box.arch", "box.disk_gb"),
    *("rent.secure_only", "rent.region", "rent.min_reliability", "rent.min_down_mbps"),
    *("rent.min_hours", "rent.max_price", "network", "quota"),
)
"""The keys of a profile that an offer may miss; `network` is the group's, `quota` the account's."""


@dataclass(frozen=True)
class RentOrder:
    """What the profile orders; None or "" means any."""

    gpu_names: tuple[str, ...] = ()
    """Any of these models, and an earlier one rather than a later one."""
    gpu_count: int = 1
    min_memory_gib: float | None = None
    min_cuda: str = ""
    arch: str = "amd64"
    secure_only: bool = False
    """Only machines in the provider's data centers, not those of anybody else."""
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
    min_reliability: float | None = None
    min_down_mbps: float | None = None
    min_hours: float | None = None
    """How long it must be for rent."""

    lease_hours: float | None = None
    lease_dollars: float | None = None
    """How long the lease lets it live, for a provider that ends it at a fixed time."""

    network: str = ""
    """The private network that it shares with the other boxes of this group."""
    beside: str = ""
    """The provider and machine (`Offer.machine`) of a box of that network: it is as that one."""
    boxes: int = 1
    """How many boxes that network has, for a provider that makes all by one request."""

    def loosened(self) -> RentOrder:
        """Return an order for whatever there is of that many GPUs."""
        return RentOrder(
            gpu_count=self.gpu_count,
            disk_gb=self.disk_gb,
            arch="",
            spot=self.spot,
            lease_hours=self.lease_hours,
            lease_dollars=self.lease_dollars,
            boxes=self.boxes,
        )


def limit_s(order: RentOrder, price: float) -> int:
    """Return the seconds after which a provider itself is to end a box: after the end of its lease,
    however that counts. `price`: dollars an hour."""
    by_dollars = order.lease_dollars / price if order.lease_dollars and price else None
    hours = [each for each in (order.lease_hours, by_dollars) if each]
    return int(min(hours, default=LEASE_HOURS) * 3600) + AFTER_LEASE_S


@dataclass(frozen=True)
class Offer(Document):
    """One box for rent. A field is None if the provider doesn't say."""

    KEYS = "**, price:6"

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
    arch: str = ""
    """Of its processors: amd64 or arm64; "" if the provider doesn't say."""
    is_secure: bool | None = None
    """Whether it is in the provider's data centers."""
    reliability: float | None = None
    """From 0 to 1."""
    down_mbps: float | None = None
    up_mbps: float | None = None
    region: str = ""
    machine: str = ""
    """The machine, as exactly as the provider names it (a type and its place, if it names none):
    one that turned out bad is not tried twice."""
    disk_gb: float | None = None
    """The largest disk that it can have."""
    hours: float | None = None
    """How long it is for rent: until its host's contract ends."""
    lacks: str = ""
    """What the account's quota lacks for it."""
    boxes: int = 1
    """How many such boxes are rented at once, each at `price`: a cluster."""

    def misses(self, order: RentOrder) -> list[str]:
        return list(self.missed(order).values())

    def missed(self, order: RentOrder) -> dict[str, str]:
        """Return the same by the profile's key that asks for it."""
        price = order.max_price
        found = {
            "gpu.name": bool(order.gpu_names)
            and self.preference(order) == len(order.gpu_names)
            and f"no {' or '.join(order.gpu_names)}",
            "gpu.count": self.gpu_count != order.gpu_count
            and f"{self.gpu_count} GPUs, not {order.gpu_count}",
            "gpu.min_memory_gib": self.memory_gib is not None
            and order.min_memory_gib is not None
            and not gpu_models.holds(self.gpu, self.memory_gib, order.min_memory_gib)
            and f"{self.memory_gib:g} GiB each, not {order.min_memory_gib:g}",
            "gpu.min_cuda": bool(self.max_cuda and order.min_cuda)
            and version_tuple(self.max_cuda) < version_tuple(order.min_cuda)
            and f"CUDA {self.max_cuda}, not {order.min_cuda}",
            "box.arch": bool(self.arch and order.arch)
            and self.arch != order.arch
            and f"{self.arch}, not {order.arch}",
            "rent.secure_only": order.secure_only
            and self.is_secure is False
            and "not in a data center of the provider's",
            "box.disk_gb": _is_less(self.disk_gb, order.disk_gb)
            and f"{self.disk_gb:.0f} GB of disk, not {order.disk_gb}",
            "rent.region": not self._is_in(order.region)
            and f"in {self.region or 'an unknown region'}, not {order.region}",
            "rent.min_reliability": _is_less(self.reliability, order.min_reliability)
            and f"{self.reliability:.1%} reliable, not {order.min_reliability:.1%}",
            "rent.min_down_mbps": _is_less(self.down_mbps, order.min_down_mbps)
            and f"{self.down_mbps:.0f} Mbit/s down, not {order.min_down_mbps:.0f}",
            "rent.min_hours": _is_less(self.hours, order.min_hours)
            and f"for {self.hours:.0f} hours at the most, not {order.min_hours:.0f}",
            "rent.max_price": price is not None
            and self.price > price
            and f"{dollars(self.price - price)} an hour too expensive",
            "network": bool(order.beside)
            and f"{self.provider}:{self.machine}" != order.beside
            and f"not {order.beside}, as the first box",
            "quota": self.lacks,
        }
        return {key: said for key, said in found.items() if said}

    def preference(self, order: RentOrder) -> int:
        """Return which of the ordered names it has, counted from 0; their number if none."""
        fits = (
            at
            for at, name in enumerate(order.gpu_names)
            if not gpu_models.difference(name, self.gpu, self.memory_gib)
        )
        return next(fits, len(order.gpu_names))

    def _is_in(self, region: str) -> bool:
        named = rf"(?<![a-z]){re.escape(region.lower())}(?![a-z])"
        return not region or bool(re.search(named, self.region.lower()))

    def exceeds(self, order: RentOrder) -> list[str]:
        """Return what it has beyond the order, and what is paid for as well."""
        memory, asked = self.memory_gib, order.min_memory_gib
        more = memory is not None and asked is not None and memory > asked * 1.1
        return [f"{memory:g} GiB each for {asked:g}"] if more else []


@dataclass(frozen=True)
class StopRule:
    """What stopping a box means at a provider."""

    keeps: str
    costs: str  # what a stopped box still costs
    only_volume: bool = False  # whether it keeps only the volume that the box was rented with


@dataclass(frozen=True)
class Leftover(Document):
    """Something that an account has besides boxes, and pays for."""

    KEYS = "name=shown_name, kind, price"

    provider: str
    id: str
    name: str
    kind: str
    """The provider's name for such a thing."""
    size_gb: float | None = None
    price: float | None = None
    """Dollars an hour; None if the provider doesn't say."""

    @property
    def shown_name(self) -> str:
        return self.name or self.id


def volume_at(workdir: str) -> str:
    """Return where a box with this working folder wants its volume."""
    return workdir if workdir.startswith("/") else "/workspace"


def _is_less(has: float | None, asked: float | None) -> bool:
    return has is not None and asked is not None and has < asked


def version_tuple(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


class RentedState(enum.Enum):
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
    gpu_count: int | None = None
    """How many it has while it runs; None if the provider doesn't say."""
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
    ends: float | None = None
    """When its host's contract ends, and the box with it; None if the provider doesn't say."""
    increase: float | None = None
    """Dollars an hour more that its host asks for after that."""
    said: str = ""
    """What the provider says about its state, in its own words."""

    is_spot: bool | None = None
    """Whether the provider may take it back when others pay more; None if it doesn't say."""
    let_in: bool = False
    """Whether this machine's address was let in just now, and wasn't before."""
    other_ways: tuple[tuple[str, int], ...] = ()
    """Further addresses and ports at which its SSH is reached."""
    cluster: str = ""
    """The cluster whose boxes share a private network with it, and end together with it; "" for
    none."""

    @property
    def is_unfilled(self) -> bool:
        """Whether it is a cluster by itself, none of whose boxes is there yet."""
        return bool(self.cluster) and self.id == self.cluster

    def ways(self) -> tuple[tuple[str, int], ...]:
        """Return every address and port at which its SSH is reached now."""
        return ((self.address, self.port), *self.other_ways) if self.address else ()

    @property
    def host(self) -> str:
        return f"{self.provider}:{self.id}"

    def price_now(self) -> float | None:
        return self.stopped_price if self.state is RentedState.STOPPED else self.price
