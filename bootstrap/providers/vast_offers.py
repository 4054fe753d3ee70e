"""Vast.ai's offers: the search for an order, and the conversion of its answer."""

from __future__ import annotations

from collections.abc import Sequence

from bootstrap.providers.api import ApiModel
from bootstrap.providers.offer import Offer, RentOrder

_MOST = 3000
_HOURS = 720
"""Hours in a month, as its disk prices count them."""


class VastOffer(ApiModel):
    """One offer of an answer."""

    id: int
    machine_id: int | None = None
    gpu_name: str
    num_gpus: int
    gpu_ram: float | None = None
    cuda_max_good: float | None = None
    dph_base: float | None = None
    dph_total: float
    min_bid: float | None = None
    storage_cost: float | None = None
    disk_space: float | None = None
    reliability2: float | None = None
    inet_down: float | None = None
    inet_up: float | None = None
    geolocation: str | None = None


class VastOffers(ApiModel):
    """An answer of `bundles`."""

    offers: Sequence[VastOffer]


def wanted(order: RentOrder) -> dict[str, object]:
    """Return the search. It can't match part of a name, so `Offer.misses` checks that, and the rest
    again, since the offers found need not fit."""
    asked: dict[str, object] = {
        "type": "bid" if order.spot else "ondemand",
        "verified": {"eq": True},
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "num_gpus": {"eq": order.gpu_count},
        "disk_space": {"gte": order.disk_gb},
        "direct_port_count": {"gte": 1},
        "order": [["dph_total", "asc"], ["reliability2", "desc"]],
        "allocated_storage": order.disk_gb,
        "limit": _MOST,
    }
    if order.min_memory_gib:
        asked["gpu_ram"] = {"gte": order.min_memory_gib * 1024 * 0.9}
    return asked


def offered(provider: str, offer: VastOffer, order: RentOrder) -> Offer:
    """Convert an offer, with the price that it has with the order's disk."""
    base = offer.min_bid if order.spot else offer.dph_base
    disk = (offer.storage_cost or 0.0) * order.disk_gb / _HOURS
    return Offer(
        provider=provider,
        id=str(offer.id),
        gpu=offer.gpu_name,
        gpu_count=offer.num_gpus,
        price=offer.dph_total if base is None else base + disk,
        bid=base if order.spot else None,
        memory_gib=None if offer.gpu_ram is None else offer.gpu_ram / 1024,
        max_cuda=str(offer.cuda_max_good or ""),
        reliability=offer.reliability2,
        down_mbps=offer.inet_down,
        up_mbps=offer.inet_up,
        region=offer.geolocation or "",
        machine=str(offer.machine_id or offer.id),
        disk_gb=offer.disk_space,
    )
