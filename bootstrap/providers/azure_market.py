"""What Azure has for rent: sizes with GPUs, their regions, today's prices, what quotas leave.

Prices are those of Azure's public price list, which needs no login; sizes and quotas are asked for
in the cheapest regions alone, as each region is a request of its own. An offer is one size in one
region, so the next offer is another region or size. What is free, nobody says.
"""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from pydantic import AliasPath, Field

from bootstrap.errors import UnreachableError
from bootstrap.providers import api
from bootstrap.providers.azure_api import AzureApi
from bootstrap.providers.offer import Offer, RentOrder

NAME = "azure"
MORE = "ask for more at https://portal.azure.com/#view/Microsoft_Azure_Capacity/QuotaMenuBlade"
PRICES = "https://prices.azure.com"
COMPUTE = "api-version=2024-07-01"
_SKUS = "api-version=2021-07-01"
_RETAIL = "2023-01-01-preview"
_MOST_REGIONS = 8  # regions whose sizes and quotas are asked for at the most: the cheapest
_MOST_DISK_GB = 4095
_SPOT = "lowPriorityCores"  # the quota of all spot boxes in a region
_WHOLE = "cores"  # that of all others there, beside the one of their family
_REGION = re.compile(r"[a-z]+[0-9]?")


class AzureSize(NamedTuple):
    """A size of a machine with whole GPUs of NVIDIA's."""

    gpu: str
    gpus: int
    memory_gib: float  # of each GPU


SIZES: Mapping[str, AzureSize] = {
    **{f"Standard_NC{n}as_T4_v3": AzureSize("T4", 1, 16) for n in (4, 8, 16)},
    "Standard_NC64as_T4_v3": AzureSize("T4", 4, 16),
    **{f"Standard_NC{24 * n}ads_A100_v4": AzureSize("A100 PCIe 80GB", n, 80) for n in (1, 2, 4)},
    "Standard_NC40ads_H100_v5": AzureSize("H100 NVL", 1, 94),
    "Standard_NC80adis_H100_v5": AzureSize("H100 NVL", 2, 94),
    "Standard_ND96asr_v4": AzureSize("A100 40GB", 8, 40),
    "Standard_ND96amsr_A100_v4": AzureSize("A100 80GB", 8, 80),
    "Standard_ND96isr_H100_v5": AzureSize("H100", 8, 80),
    "Standard_ND96isr_H200_v5": AzureSize("H200", 8, 141),
}
"""Not those with parts of an A10, which only a driver for graphics runs."""


class _Price(api.CamelModel):
    retail_price: float
    arm_region_name: str
    arm_sku_name: str
    meter_name: str
    product_name: str = ""
    unit_of_measure: str = ""
    type: str = ""


class _Prices(api.ApiModel):
    items: Sequence[_Price] = Field((), alias="Items")
    next_page: str | None = Field(None, alias="NextPageLink")


class _Capability(api.CamelModel):
    name: str = ""
    value: str = ""


class _Restriction(api.CamelModel):
    type: str = ""


class _Sku(api.CamelModel):
    resource_type: str = ""
    name: str = ""
    family: str = ""
    capabilities: Sequence[_Capability] = ()
    restrictions: Sequence[_Restriction] = ()

    def has(self, name: str) -> str:
        return next((one.value for one in self.capabilities if one.name == name), "")


class _Usage(api.CamelModel):
    name: str = Field("", validation_alias=AliasPath("name", "value"))
    limit: float
    current_value: float


class _AzureRegion(NamedTuple):
    skus: Mapping[str, _Sku]
    left: Mapping[str, float]
    """vCPUs by the name of a quota, in small letters; nothing of those that nobody may read."""

    def lacks(self, sku: _Sku, *, is_spot: bool) -> str:
        """Return what it lacks for a size; "" if nothing, or nobody says."""
        if any(each.type == "Location" for each in sku.restrictions):
            return f"your subscription may not have {sku.name} there: {MORE}"
        if is_spot and sku.has("LowPriorityCapable") == "False":
            return f"{sku.name} can't be had as spot"
        wanted = float(sku.has("vCPUs") or 0)
        for quota in (_SPOT,) if is_spot else (sku.family, _WHOLE):
            left = self.left.get(quota.lower())
            if left is not None and left < wanted:
                return f"{wanted:g} vCPUs, and {left:g} are left of {quota}: {MORE}"
        return ""


class AzureMarket:
    """What a subscription may rent. Raises as `AzureApi`."""

    def __init__(self, azure: AzureApi) -> None:
        self._azure = azure
        self._public = api.Api(NAME, PRICES, None)

    def offers(self, order: RentOrder) -> list[Offer]:
        """Return an offer for each size that fits and each region, if it has a price."""
        anywhere = dataclasses.replace(order, max_price=None, region="", beside="")
        sizes = [
            name
            for name, size in SIZES.items()
            if not _offer(name, size, "", 1.0, order).misses(anywhere)
        ]
        prices = self._prices(sizes, order) if sizes else {}
        cheapest: dict[str, float] = {}
        for (_, region), price in prices.items():
            cheapest[region] = min(price, cheapest.get(region, price))
        found, away = list[Offer](), None
        for region in sorted(cheapest, key=lambda one: (cheapest[one], one))[:_MOST_REGIONS]:
            try:
                there = self._region(region)
            except api.RefusedKeyError:
                raise
            except UnreachableError as error:  # what is down has no offers
                away = error
                continue
            for name in sizes:
                cost, sku = prices.get((name, region)), there.skus.get(name)
                if cost is not None and sku is not None:
                    offer = _offer(name, SIZES[name], region, cost, order)
                    lacks = there.lacks(sku, is_spot=order.spot)
                    found.append(dataclasses.replace(offer, lacks=lacks))
        if away and not found:
            raise away
        return found

    def _prices(self, sizes: Sequence[str], order: RentOrder) -> dict[tuple[str, str], float]:
        """Return dollars an hour by size and region: of Linux, on demand or spot."""
        found: dict[tuple[str, str], float] = {}
        for row in self._rows(sizes, order.region):
            is_spot = row.meter_name.endswith(" Spot")
            is_ours = (
                is_spot == order.spot
                and (row.type, row.unit_of_measure) == ("Consumption", "1 Hour")
                and not row.meter_name.endswith(" Low Priority")
                and not re.search(r"Windows|Cloud ?Services", row.product_name)
                and row.retail_price > 0
                and row.arm_sku_name in sizes
            )
            if is_ours:
                place = row.arm_sku_name, row.arm_region_name
                found[place] = max(row.retail_price, found.get(place, 0.0))
        return found

    def _rows(self, sizes: Sequence[str], region: str) -> Iterator[_Price]:
        named = " or ".join(f"armSkuName eq '{size}'" for size in sizes)
        wanted = f"serviceName eq 'Virtual Machines' and priceType eq 'Consumption' and ({named})"
        if _REGION.fullmatch(region):
            wanted += f" and armRegionName eq '{region}'"
        query = {"api-version": _RETAIL, "$filter": wanted}
        page = self._public.get("/api/retail/prices", _Prices, **query)
        for _ in range(api.MOST_PAGES):
            yield from page.items
            if not page.next_page:
                return
            link = urlsplit(page.next_page)
            page = self._public.get(f"{link.path}?{link.query}", _Prices)
        raise api.too_many(NAME)

    def _region(self, name: str) -> _AzureRegion:
        place = f"/subscriptions/{self._azure.subscription}/providers/Microsoft.Compute"
        skus = self._azure.get(
            f"{place}/skus?{_SKUS}&$filter=location%20eq%20%27{name}%27",
            api.Envelope[Sequence[_Sku]],
        ).content
        machines = {one.name: one for one in skus if one.resource_type == "virtualMachines"}
        left: dict[str, float] = {}
        with contextlib.suppress(api.RefusedKeyError):  # a launch says it, too
            usages = self._azure.get(
                f"{place}/locations/{name}/usages?{COMPUTE}", api.Envelope[Sequence[_Usage]]
            ).content
            left = {one.name.lower(): one.limit - one.current_value for one in usages}
        return _AzureRegion(machines, left)


def _offer(name: str, size: AzureSize, region: str, price: float, order: RentOrder) -> Offer:
    return Offer(
        provider=NAME,
        id=f"{name}/{region}",
        gpu=size.gpu,
        gpu_count=size.gpus,
        price=price,
        bid=price if order.spot else None,
        memory_gib=size.memory_gib,
        arch="amd64",
        is_secure=True,
        region=region,
        machine=f"{name}/{region}",
        disk_gb=_MOST_DISK_GB,
    )
