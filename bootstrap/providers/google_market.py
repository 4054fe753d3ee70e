"""What Google Cloud has for rent: machine types with GPUs, their zones, prices, what quotas leave.

What is free, nobody says: an offer is one type in one zone, so the next offer is the next zone.
Compute Engine's API says nothing of prices: they are those of the dated table that ships.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bootstrap.providers.api import CamelModel, PartialListError, RefusedKeyError
from bootstrap.providers.estimate import machine_prices
from bootstrap.providers.google_api import GoogleApi
from bootstrap.providers.offer import Offer, RentOrder, limit_s

NAME = "gcp"
MORE = "ask for more at https://console.cloud.google.com/iam-admin/quotas"
IMAGE_CUDA = "13.0"  # the newest CUDA that the driver of the default image knows
_SHORT_RUN_S = 7 * 86400
"""Up to this, what Google deletes by itself may use the quota of preemptible GPUs, too."""
_MOST_DISK_GB = 65536
_TYPE = re.compile(r"([a-z][0-9]-[a-z]+)-([0-9]+)g?")
_G2_GPUS = {24: 2, 48: 4, 96: 8}
_G4_VCPUS = 48  # of each whole GPU; types with fewer have a part of one


class _Family(NamedTuple):
    gpu: str
    memory_gib: float
    quota: str  # the name of its quota in a region; "" if it is not listed there
    disk: str = "pd-balanced"


_FAMILIES = {
    "a2-highgpu": _Family("A100 40GB", 40, "NVIDIA_A100_GPUS"),
    "a2-ultragpu": _Family("A100 80GB", 80, "NVIDIA_A100_80GB_GPUS"),
    "a3-highgpu": _Family("H100", 80, "NVIDIA_H100_GPUS"),
    "g2-standard": _Family("L4", 24, "NVIDIA_L4_GPUS"),
    "g4-standard": _Family("RTX PRO 6000", 96, "", "hyperdisk-balanced"),
}
_NAMES = f"({'|'.join(_FAMILIES)})-[0-9]+g?"


class GoogleKind(NamedTuple):
    name: str
    family: str
    gpus: int
    vcpus: int  # 0 where the GPU's price has them

    @property
    def of(self) -> _Family:
        """What all types of its family have."""
        return _FAMILIES[self.family]

    @property
    def is_only_spot(self) -> bool:
        return self.family == "a3-highgpu" and self.gpus < 8

    def price(self, zone: str, *, is_spot: bool) -> float | None:
        """Return the dollars an hour by the dated table; None if it has none."""
        row = machine_prices(NAME).families.get(self.family, {}).get(region_of(zone))
        if row is None:
            return None
        gpu, vcpu = row[2:] if is_spot else row[:2]
        return round(self.gpus * gpu + self.vcpus * vcpu, 6)


def kind_of(name: str) -> GoogleKind | None:
    """Return a machine type; None if it has no whole GPU that is supported."""
    found = _TYPE.fullmatch(name)
    if not found or found[1] not in _FAMILIES:
        return None
    size = int(found[2])
    if found[1] == "g2-standard":
        return GoogleKind(name, found[1], _G2_GPUS.get(size, 1), size)
    if found[1] == "g4-standard":
        gpus, part = divmod(size, _G4_VCPUS)
        return None if part else GoogleKind(name, found[1], gpus, 0)
    return GoogleKind(name, found[1], size, 0)


class _MachineType(CamelModel):
    name: str
    zone: str
    deprecated: object = None


class _Quota(CamelModel):
    metric: str
    limit: float
    usage: float


class _Project(CamelModel):
    quotas: Sequence[_Quota] = ()


class _Region(CamelModel):
    name: str
    quotas: Sequence[_Quota] = ()


class GoogleMarket:
    """What a project may rent. Raises as `GoogleApi`."""

    def __init__(self, google: GoogleApi) -> None:
        self._google = google

    def offers(self, order: RentOrder) -> list[Offer]:
        """Return an offer for each type that fits and each zone, if it has a price."""
        anywhere = dataclasses.replace(order, max_price=None, region="", beside="")
        wanted = f'name eq "{_NAMES}"'
        types = list[_MachineType]()
        with contextlib.suppress(PartialListError):  # what is down has no offers
            types.extend(self._google.every("aggregated/machineTypes", _MachineType, filter=wanted))
        fits = [
            (kind, offer)
            for one in types
            if not one.deprecated
            and (kind := kind_of(one.name))
            and (offer := _offered(kind, one.zone.rpartition("/")[2], order))
            and not offer.misses(anywhere)
        ]
        left = self._left() if fits else _Left({}, {})
        return [
            dataclasses.replace(offer, lacks=left.lacks(kind, offer, order)) for kind, offer in fits
        ]

    def _left(self) -> _Left:
        """Return what is left of quotas; nothing of those that nobody may read."""
        with contextlib.suppress(RefusedKeyError, PartialListError):  # a launch says it, too
            whole = self._google.get(self._google.path(), _Project).quotas
            every = self._google.every("regions", _Region)
            regions = {one.name: _by_name(one.quotas) for one in every}
            return _Left(_by_name(whole), regions)
        return _Left({}, {})


class _Left(NamedTuple):
    """What is left of a project's quotas: of the whole, and by region."""

    whole: Mapping[str, float]
    regions: Mapping[str, Mapping[str, float]]

    def lacks(self, kind: GoogleKind, offer: Offer, order: RentOrder) -> str:
        """Return what they lack for an offer; "" if they cover it, or say nothing of it."""
        region, quota = region_of(offer.id.partition("/")[2]), kind.of.quota
        own = self.regions.get(region, {})
        usual, preemptible = own.get(quota), own.get(f"PREEMPTIBLE_{quota}", 0.0)
        # Either may serve a spot box, and one that Google soon deletes by itself.
        if usual is not None and (order.spot or limit_s(order, offer.price) <= _SHORT_RUN_S):
            usual = max(usual, preemptible)
        everywhere = self.whole.get("GPUS_ALL_REGIONS")
        lefts = {f"{quota}, {region}": usual, "GPUS_ALL_REGIONS": everywhere}
        for name, left in lefts.items():
            if left is not None and left < kind.gpus:
                return f"{kind.gpus} GPUs, and {left:g} are left of {name}: {MORE}"
        return ""


def _by_name(quotas: Sequence[_Quota]) -> dict[str, float]:
    return {each.metric: max(0.0, each.limit - each.usage) for each in quotas}


def _offered(kind: GoogleKind, zone: str, order: RentOrder) -> Offer | None:
    """Return the offer of a type in a zone; None if nothing says what it costs."""
    price = kind.price(zone, is_spot=order.spot)
    if price is None or (kind.is_only_spot and not order.spot):
        return None
    return Offer(
        provider=NAME,
        id=f"{kind.name}/{zone}",
        gpu=kind.of.gpu,
        gpu_count=kind.gpus,
        price=price,
        bid=price if order.spot else None,
        memory_gib=kind.of.memory_gib,
        max_cuda="" if order.image else IMAGE_CUDA,
        arch="amd64",
        is_secure=True,
        region=f"{region_of(zone)}, {zone}",
        machine=f"{kind.name}/{zone}",
        disk_gb=_MOST_DISK_GB,
    )


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]
