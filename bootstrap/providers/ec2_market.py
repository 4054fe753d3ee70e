"""What EC2 has for rent: instance types with GPUs, their zones, prices, and what quotas leave. What
is free, nobody says: an offer is one type in one zone, so the next offer is the next zone."""

import contextlib
import dataclasses
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from bootstrap.providers.api import RefusedError, RefusedKeyError
from bootstrap.providers.aws_api import AwsApi
from bootstrap.providers.offer import Offer, RentOrder

NAME = "ec2"
_PRICES = "us-east-1"  # where the price list is asked
_ARCHS = {"x86_64": "amd64", "arm64": "arm64"}
_ZONE = re.compile(r"([a-z]{2,}(?:-[a-z]+)+-\d)([a-z]?)")
_KINDS = ("g*", "p*")
_TOO_OLD = frozenset({"V100", "M60", "K80", "K520"})
"""GPUs that NVIDIA's open driver, which the Deep Learning AMI has, doesn't know."""
_MOST_DISK_GB = 16384
_PARALLEL = 8
_QUOTAS = {
    ("g", False): ("L-DB2E81BA", "Running On-Demand G and VT instances"),
    ("g", True): ("L-3819A6DF", "All G and VT Spot Instance Requests"),
    ("p", False): ("L-417A185B", "Running On-Demand P instances"),
    ("p", True): ("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    ("p5", True): ("L-C4BD4855", "All P5 Spot Instance Requests"),
}
"""Of a family of types, on demand and spot: code and name; counted in vCPUs, and 0 at first."""
OVER_QUOTA = frozenset({"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"})
"""Codes of launches that a quota refuses."""
_T = TypeVar("_T")


class _Kind(NamedTuple):
    name: str
    gpu: str
    gpus: int
    memory_gib: float
    arch: str
    vcpus: int
    sold: Sequence[str]  # as `on-demand`, `spot`


class Ec2Market:
    """What an account may rent. Raises as `AwsApi`."""

    def __init__(self, aws: AwsApi) -> None:
        self._aws = aws

    def offers(self, order: RentOrder) -> list[Offer]:
        """Return an offer for each type that fits and each zone of one region."""
        named = _ZONE.fullmatch(order.region)
        region = named[1] if named else self._aws.region
        anywhere = dataclasses.replace(order, max_price=None, region="", beside="")
        every = [*self._kinds(region)]
        kinds = {
            kind.name: kind
            for kind in every
            if ("spot" if order.spot else "on-demand") in kind.sold
            and not _offered(kind, f"{region}a", region, 0.0, order).misses(anywhere)
        }
        zones = self._zones(region, [*kinds])
        names = list(dict.fromkeys(kind for kind, _ in zones))
        if order.spot:
            prices = self._spot_prices(region, names)
        else:
            found = ask_each(lambda kind: self._list_price(region, kind), names)
            listed = dict(zip(names, found, strict=True))
            prices = {(kind, zone): price for kind, zone in zones if (price := listed[kind])}
        lacks = self._lacks(names, every, region, is_spot=order.spot)
        return [
            dataclasses.replace(
                _offered(kinds[kind], zone, region, prices[kind, zone], order), lacks=lacks[kind]
            )
            for kind, zone in zones
            if (kind, zone) in prices
        ]

    def price(self, kind: str, zone: str, region: str, *, is_spot: bool) -> float | None:
        if is_spot:
            return self._spot_prices(region, [kind]).get((kind, zone))
        return self._list_price(region, kind)

    def _kinds(self, region: str) -> Iterator[_Kind]:
        asked = aws_filters({"instance-type": _KINDS})
        for page in self._aws.pages("describe_instance_types", region, Filters=asked):
            for one in page["InstanceTypes"]:
                if kind := _kind(one):
                    yield kind

    def _zones(self, region: str, kinds: Sequence[str]) -> list[tuple[str, str]]:
        if not kinds:
            return []
        pages = self._aws.pages(
            "describe_instance_type_offerings",
            region,
            LocationType="availability-zone",
            Filters=aws_filters({"instance-type": kinds}),
        )
        found = [one for page in pages for one in page["InstanceTypeOfferings"]]
        return [
            (one["InstanceType"], one["Location"])
            for one in found
            if one["InstanceType"] in kinds and _ZONE.fullmatch(one["Location"])
        ]

    def _list_price(self, region: str, kind: str) -> float | None:
        """Return the list price of a type on demand; None if the list has none."""
        wanted = {
            **{"regionCode": region, "instanceType": kind, "operatingSystem": "Linux"},
            **{"tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"},
        }
        answer = self._aws.ask(
            "get_products",
            _PRICES,
            service="pricing",
            ServiceCode="AmazonEC2",
            Filters=[
                {"Type": "TERM_MATCH", "Field": name, "Value": value}
                for name, value in wanted.items()
            ],
        )
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            for text in answer["PriceList"]:
                for term in json.loads(text)["terms"]["OnDemand"].values():
                    for row in term["priceDimensions"].values():
                        if price := float(row["pricePerUnit"]["USD"]):
                            return price
        return None

    def _spot_prices(self, region: str, kinds: Sequence[str]) -> dict[tuple[str, str], float]:
        if not kinds:
            return {}
        now = self._aws.answered_at or time.time()
        pages = self._aws.pages(
            "describe_spot_price_history",
            region,
            InstanceTypes=[*kinds],
            ProductDescriptions=["Linux/UNIX"],
            StartTime=now,
        )
        rows = sorted(
            (row for page in pages for row in page["SpotPriceHistory"]),
            key=lambda row: str(row["Timestamp"]),
        )
        return {(x["InstanceType"], x["AvailabilityZone"]): float(x["SpotPrice"]) for x in rows}

    def _lacks(
        self, names: Sequence[str], every: Sequence[_Kind], region: str, *, is_spot: bool
    ) -> dict[str, str]:
        """Return for each type what its quota lacks; "" if it covers it, or nobody may read it."""
        sizes = {kind.name: kind.vcpus for kind in every}
        families = {_family(name, is_spot=is_spot) for name in names}
        left = {
            each: self._left_of_quota(each, sizes, region, is_spot=is_spot) for each in families
        }
        found = dict[str, str]()
        for name in names:
            family = _family(name, is_spot=is_spot)
            has, quota = left[family], quota_name(name, is_spot=is_spot)
            said = f"{sizes[name]} vCPUs, and {has or 0:g} are left of {quota}, {region}: ask AWS "
            is_covered = has is None or has >= sizes[name]
            found[name] = "" if is_covered else f"{said}for more (Service Quotas)"
        return found

    def _left_of_quota(
        self, family: str, sizes: Mapping[str, int], region: str, *, is_spot: bool
    ) -> float | None:
        code, _ = _QUOTAS[family, is_spot]
        asked = {"ServiceCode": "ec2", "QuotaCode": code}
        try:
            quota = self._aws.ask("get_service_quota", region, service="service-quotas", **asked)
        except (RefusedKeyError, RefusedError):
            return None  # a launch says it, too
        own = [name for name in sizes if _family(name, is_spot=is_spot) == family]
        running = {"instance-type": own, "instance-state-name": ["pending", "running"]}
        used = sum(
            sizes[one["InstanceType"]]
            for one in find_instances(self._aws, region, Filters=aws_filters(running))
            if (one.get("InstanceLifecycle") == "spot") == is_spot
        )
        left: float = quota["Quota"]["Value"] - used
        return max(0.0, left)


def aws_filters(wanted: Mapping[str, Sequence[str]]) -> list[dict[str, object]]:
    return [{"Name": name, "Values": [*values]} for name, values in wanted.items()]


def find_instances(aws: AwsApi, region: str, **asked: object) -> list[dict[str, Any]]:
    pages = aws.pages("describe_instances", region, **asked)
    return [one for page in pages for held in page["Reservations"] for one in held["Instances"]]


def ask_each(do: Callable[[str], _T], names: Sequence[str]) -> list[_T]:
    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="ec2") as pool:
        return list(pool.map(do, names))


def _kind(one: Mapping[str, Any]) -> _Kind | None:
    """Return an instance type; None if it has no whole GPU that is supported."""
    gpus = one.get("GpuInfo", {}).get("Gpus", ())
    arch = next(
        (_ARCHS[x] for x in one["ProcessorInfo"]["SupportedArchitectures"] if x in _ARCHS), ""
    )
    if len(gpus) != 1 or gpus[0].get("Manufacturer") != "NVIDIA" or not gpus[0].get("Count"):
        return None
    if gpus[0]["Name"] in _TOO_OLD:
        return None
    memory = gpus[0].get("MemoryInfo", {}).get("SizeInMiB", 0) / 1024
    return _Kind(
        one["InstanceType"],
        gpus[0]["Name"],
        gpus[0]["Count"],
        memory,
        arch,
        one["VCpuInfo"]["DefaultVCpus"],
        one.get("SupportedUsageClasses", ()),
    )


def _offered(kind: _Kind, zone: str, region: str, price: float, order: RentOrder) -> Offer:
    return Offer(
        provider=NAME,
        id=f"{kind.name}/{zone}",
        gpu=kind.gpu,
        gpu_count=kind.gpus,
        price=price,
        bid=price if order.spot else None,
        memory_gib=kind.memory_gib,
        arch=kind.arch,
        is_secure=True,
        region=f"{region}, {zone}",
        machine=f"{kind.name}/{zone}",
        disk_gb=_MOST_DISK_GB,
    )


def quota_name(kind: str, *, is_spot: bool) -> str:
    code, name = _QUOTAS[_family(kind, is_spot=is_spot), is_spot]
    return f"{code} ({name})"


def _family(kind: str, *, is_spot: bool) -> str:
    """Return the family of types that shares a quota with this one: spot has one for P5 alone."""
    return "p5" if is_spot and kind.startswith("p5") else kind[0]
