"""What a training costs: rented hours, disk, egress, buying instead.

Dollars are US dollars; a month has 730 hours, as providers bill disks. A price says when and where
it was read; the dated table that ships, `prices.json`, is renewed by `make prices`.
"""

import dataclasses
import json
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bootstrap.errors import BoxstrapError
from bootstrap.onbox.verdict import gpu_models
from bootstrap.sizes import dollars
from bootstrap.value import Document

HOURS_A_MONTH = 730.0


@dataclass(frozen=True)
class Usage:
    """What is used: hours of a box with so many GPUs, and what goes with it."""

    hours: float  # of one experiment
    experiments: int = 1
    gpus: int = 1
    disk_gb: float = 0.0
    egress_gb: float = 0.0  # what leaves the box for the internet: results that are pulled
    stopped_hours: float = 0.0
    """Hours for which the box is kept stopped, and only its disk is paid for."""

    @property
    def all_hours(self) -> float:
        return self.hours * self.experiments


@dataclass(frozen=True)
class Rates:
    """What a provider charges beside its GPUs; None if that is not known."""

    disk: float | None = None  # dollars a GB and month while the box runs
    stopped_disk: float | None = None
    """The same while it is stopped; None also where a box can't be stopped."""
    egress: float | None = None  # dollars a GB that leaves for the internet


@dataclass(frozen=True)
class Cost:
    """The parts of a cost in dollars; a part is None if its rate is not known."""

    compute: float
    disk: float | None = 0.0
    egress: float | None = 0.0
    stopped: float | None = 0.0

    @property
    def total(self) -> float:
        return self.compute + sum(part or 0.0 for part in (self.disk, self.egress, self.stopped))

    @property
    def unknown(self) -> list[str]:
        """The parts that are not in the total, because nobody says what they cost."""
        parts = {"disk": self.disk, "egress": self.egress, "stopped disk": self.stopped}
        return [name for name, part in parts.items() if part is None]


def cost_of(usage: Usage, dollars_per_gpu_hour: float, rates: Rates = Rates()) -> Cost:
    hours = usage.all_hours
    return Cost(
        compute=hours * usage.gpus * dollars_per_gpu_hour,
        disk=_times(rates.disk, usage.disk_gb * hours / HOURS_A_MONTH),
        egress=_times(rates.egress, usage.egress_gb * usage.experiments),
        stopped=_times(rates.stopped_disk, usage.disk_gb * usage.stopped_hours / HOURS_A_MONTH),
    )


def _times(rate: float | None, amount: float) -> float | None:
    return 0.0 if not amount else None if rate is None else rate * amount


def break_even_hours(
    card: float, rent_per_hour: float, *, watts: float = 0.0, kwh: float = 0.0
) -> float | None:
    """Return the hours of use after which a bought card is cheaper than renting; None if never.

    `card`: its price. `watts` and `kwh`: what the machine draws under load, and dollars a kWh.
    Only hours of use count: an idle card costs nothing here, and its resale is worth nothing.
    """
    saved_an_hour = rent_per_hour - watts / 1000 * kwh
    return card / saved_an_hour if saved_an_hour > 0 else None


@dataclass(frozen=True)
class Spending:
    estimated: float
    so_far: float

    def line(self, *, is_over: bool) -> str:
        """Return it as one line; an estimate of 0 means that nothing was estimated."""
        if not self.estimated:
            return dollars(self.so_far)
        before = f"{dollars(self.estimated)} were estimated"
        if not is_over:
            return f"{dollars(self.so_far)} so far; {before}"
        more = self.so_far - self.estimated
        less = "less" if more < 0 else "more"
        return f"{dollars(self.so_far)}; {before}, {dollars(abs(more))} {less}"


def spending(price: float, hours: float, seconds: float) -> Spending:
    """Return the estimate of so many hours at a box's price, and what `seconds` of it cost."""
    before = cost_of(Usage(hours), price).total
    return Spending(before, cost_of(Usage(seconds / 3600), price).total)


TABLE = Path(__file__).with_name("prices.json")
PATIENCE_S = 5.0  # seconds that a provider has to answer
CLOUDS = ("aws", "gcp", "azure")
"""Providers that have no account here, whose prices `gpuhunt` knows."""


@dataclass(frozen=True)
class Price:
    """What one GPU of a kind costs at a provider."""

    provider: str
    gpu: str
    memory_gb: float
    gpus: int  # of the smallest box that has them
    kind: str  # on demand, spot, bid, community, secure or marketplace
    price: float  # dollars an hour for each GPU
    date: str
    source: str
    live: bool = False
    disk_included: bool = False  # whether the price has the order's disk in it

    def paid_for(self, gpus: int) -> int:
        """Return how many are paid for where so many are used: whole boxes are."""
        return -(-gpus // self.gpus) * self.gpus

    def is_a(self, gpu: str) -> bool:
        """Whether it is such a GPU, by a name as anybody writes it."""
        return not gpu_models.difference(gpu, self.gpu, self.memory_gb)

    @property
    def shown_bytes(self) -> float:
        return gpu_models.shown_gib(self.gpu, self.memory_gb) * 2**30


@dataclass(frozen=True)
class Found:
    """Prices, and why a provider that was asked gave none."""

    prices: Sequence[Price]
    failed: Mapping[str, str] = dataclasses.field(default_factory=dict)


@cache
def _document() -> dict[str, Any]:
    return json.loads(TABLE.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def shipped_prices() -> list[Price]:
    return [Price(**row) for row in _document()["prices"]]


def rates_of(provider: str) -> Rates:
    """Return what a provider charges for disk and traffic; nothing is known of most."""
    row = _document()["rates"].get(provider, {})
    return Rates(row.get("disk"), row.get("stopped_disk"), row.get("egress"))


class MachinePrices(NamedTuple):
    """What a cloud's machines with GPUs cost, where its own API says nothing of that."""

    date: str
    source: str
    families: Mapping[str, Mapping[str, Sequence[float]]]
    """By family of types and region, dollars an hour: of a GPU and of a vCPU on demand, then both
    for spot. Where all types of a family have as many vCPUs for each GPU, the GPU's has them."""


def machine_prices(provider: str) -> MachinePrices:
    return MachinePrices(**_document()["machines"][provider])


def oldest(prices: Iterable[Price]) -> date:
    return min(date.fromisoformat(price.date) for price in prices)


Asking = Callable[[], Sequence[Price]]


def with_live(table: Sequence[Price], asked: Mapping[str, Asking]) -> Found:
    """Ask providers at the same time; those that answer replace their rows of the table. A provider
    that fails, or takes longer than `PATIENCE_S`, keeps the table's rows."""
    pool = ThreadPoolExecutor(max(1, len(asked)), thread_name_prefix="prices")
    calls = {pool.submit(ask): name for name, ask in asked.items()}
    done, late = wait(calls, PATIENCE_S)
    pool.shutdown(wait=False, cancel_futures=True)
    failed = {calls[call]: f"no answer within {PATIENCE_S:.0f} s" for call in late}
    live: dict[str, Sequence[Price]] = {}
    for call in done:
        try:
            live[calls[call]] = call.result()
        except ImportError:
            failed[calls[call]] = "its prices need gpuhunt: pip install 'boxstrap[prices]'"
        except Exception as error:
            failed[calls[call]] = error.what if isinstance(error, BoxstrapError) else repr(error)
    kept = [price for price in table if not live.get(price.provider)]
    return Found([*kept, *(price for prices in live.values() for price in prices)], failed)


_LOADING = threading.Lock()  # the catalogue is one download for all clouds


@cache
def _catalog() -> Any:  # noqa: ANN401 - an extra, which may be missing
    import gpuhunt  # type: ignore[import-not-found,import-untyped,unused-ignore]

    # It logs a traceback for each provider that it can't reach; `with_live` says what matters.
    logging.getLogger("gpuhunt").setLevel(logging.CRITICAL + 1)
    catalog = gpuhunt.Catalog(balance_resources=False, auto_reload=False)
    if "GPUHUNT_CATALOG_DIR" not in os.environ:  # then it reads files
        catalog.load()
    return catalog


def cheapest_of_each(prices: Iterable[Price], gpus: int) -> list[Price]:
    """Return the price of each GPU and kind at which so many GPUs cost the least: boxes of eight
    may be cheaper for each, and are paid for as a whole."""
    found: dict[tuple[str, str], Price] = {}
    for price in prices:
        place = (price.gpu, price.kind)
        paid = price.price * price.paid_for(gpus)
        if price.price > 0 and (
            place not in found or paid < found[place].price * found[place].paid_for(gpus) - 1e-12
        ):
            found[place] = price
    return list(found.values())


_ONLY_SPOT = re.compile(r"a3-highgpu-[124]g")
"""Machine types with a price on demand at which nobody gets one."""


def catalogue_of(provider: str, names: Sequence[str], gpus: int = 1) -> list[Price]:
    """Return a cloud's prices by gpuhunt, the cheapest of each GPU and kind for so many GPUs.
    Raises ImportError without the extra `boxstrap[prices]`; whatever gpuhunt raises."""
    with _LOADING:
        catalog = _catalog()
    found = (
        Price(
            provider,
            f"{item.gpu_name} {item.gpu_memory:g}GB",
            item.gpu_memory,
            item.gpu_count,
            "spot" if item.spot else "on demand",
            item.price / item.gpu_count,
            time.strftime("%Y-%m-%d"),
            f"gpuhunt's catalogue, {item.location}",
            live=True,
        )
        for item in catalog.query(provider=provider, min_gpu_count=1)
        if item.spot or not _ONLY_SPOT.fullmatch(item.instance_name)
    )
    return cheapest_of_each((price for price in found if any(map(price.is_a, names))), gpus)


HEAD = ("PROVIDER", "GPU", "KIND", "$/GPU h", "TOTAL", "READ ON", "")


@dataclass(frozen=True)
class Row(Document):
    """A price, and what the usage costs at it."""

    KEYS = (
        "**price, paid_gpus=gpus, compute=cost.compute:4, disk=cost.disk:4, "
        "egress=cost.egress:4, stopped=cost.stopped:4, total=cost.total:4, "
        "not_in_total=cost.unknown"
    )

    price: Price
    cost: Cost
    gpus: int  # GPUs that are paid for: a provider's smallest box may have more than are used

    def cells(self) -> tuple[str, ...]:
        whole = self.price.gpus > 1
        notes = [f"boxes of {self.price.gpus}: {self.gpus} GPUs are paid for"] if whole else []
        notes += [f"without {', '.join(self.cost.unknown)}"] if self.cost.unknown else []
        return (
            self.price.provider,
            self.price.gpu,
            self.price.kind,
            dollars(self.price.price),
            dollars(self.cost.total),
            "live" if self.price.live else self.price.date,
            "; ".join(notes),
        )


def estimate_rows(prices: Sequence[Price], usage: Usage) -> list[Row]:
    """Return a row for each price, the cheapest total first."""
    rows = [_row(price, usage) for price in prices]
    return sorted(rows, key=lambda row: (row.cost.total, row.price.provider, row.price.kind))


def _row(price: Price, usage: Usage) -> Row:
    rates = Rates(disk=0.0) if price.disk_included else rates_of(price.provider)
    paid = price.paid_for(usage.gpus)
    whole = dataclasses.replace(usage, gpus=paid)
    return Row(price, cost_of(whole, price.price, rates), paid)
