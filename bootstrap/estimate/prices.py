"""Prices of GPUs: the dated table that ships, live offers of accounts, and catalogues of clouds.

A price says when and where it was read. `prices.json` is renewed by `make prices`.
"""

from __future__ import annotations

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
from typing import Any

from bootstrap.errors import BoxstrapError
from bootstrap.estimate.cost import Rates

TABLE = Path(__file__).with_name("prices.json")
OLD_DAYS = 180
"""Days after which the table's prices are too old for a release."""
PATIENCE_S = 5.0
"""Seconds that a provider has to answer."""
CLOUDS = ("aws", "gcp", "azure")
"""Providers that have no account here, whose prices `gpuhunt` knows."""


@dataclass(frozen=True)
class Price:
    """What one GPU of a kind costs at a provider."""

    provider: str
    gpu: str
    memory_gb: float
    gpus: int
    """Of the smallest box that has them."""
    kind: str
    """on demand, spot, bid, community, secure or marketplace."""
    price: float
    """Dollars an hour for each GPU."""
    date: str
    source: str
    live: bool = False
    disk_included: bool = False
    """Whether the price has the order's disk in it."""

    def fits(self, gpu: str, least_gb: float = 0.0) -> bool:
        """Whether it is such a GPU: each word of `gpu` is in its name, and it has the memory."""
        has = _words(self.gpu)
        return all(word in has for word in _words(gpu)) and self.memory_gb >= least_gb * 0.96


def _words(name: str) -> list[str]:
    """Return a GPU's name as words: providers write A100-40GB, RTX4090 and RTX 4090."""
    spaced = re.sub(r"(?<=[a-z])(?=\d{4})", " ", name.lower())
    return re.findall(r"\d+ ?gi?b|[a-z0-9]+", spaced.replace(" gb", "gb").replace("gib", "gb"))


@dataclass(frozen=True)
class Found:
    """Prices, and why a provider that was asked gave none."""

    prices: Sequence[Price]
    failed: Mapping[str, str] = dataclasses.field(default_factory=dict)


@cache
def _document() -> dict[str, Any]:
    return json.loads(TABLE.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def shipped_prices() -> list[Price]:
    """Return the prices of the table."""
    return [Price(**row) for row in _document()["prices"]]


def rates_of(provider: str) -> Rates:
    """Return what a provider charges for disk and traffic; nothing is known of most."""
    row = _document()["rates"].get(provider, {})
    return Rates(row.get("disk"), row.get("stopped_disk"), row.get("egress"))


def oldest(prices: Iterable[Price]) -> date:
    """Return the date of the oldest of them."""
    return min(date.fromisoformat(price.date) for price in prices)


Asking = Callable[[], Sequence[Price]]


def with_live(table: Sequence[Price], asked: Mapping[str, Asking]) -> Found:
    """Ask providers at the same time; those that answer replace their rows of the table.

    A provider that fails, or takes longer than `PATIENCE_S`, keeps the table's rows.
    """
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


_LOADING = threading.Lock()
"""The catalogue is one download for all clouds."""


@cache
def _catalog() -> Any:  # noqa: ANN401 - an extra, which may be missing
    import gpuhunt  # type: ignore[import-not-found,import-untyped,unused-ignore]

    # It logs a traceback for each provider that it can't reach; `with_live` says what matters.
    logging.getLogger("gpuhunt").setLevel(logging.CRITICAL + 1)
    catalog = gpuhunt.Catalog(balance_resources=False, auto_reload=False)
    if "GPUHUNT_CATALOG_DIR" not in os.environ:  # then it reads files
        catalog.load()
    return catalog


def catalogue_of(provider: str, gpus: Sequence[str]) -> list[Price]:
    """Return a cloud's prices by gpuhunt, the cheapest of each GPU and kind.

    Raises ImportError without the extra `boxstrap[prices]`; whatever gpuhunt raises.
    """
    with _LOADING:
        catalog = _catalog()
    cheapest: dict[tuple[str, str], Price] = {}
    for item in catalog.query(provider=provider, min_gpu_count=1):
        price = Price(
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
        place = (price.gpu, price.kind)
        if any(map(price.fits, gpus)) and price.price < cheapest.get(place, price).price + 1e-12:
            cheapest[place] = price
    return list(cheapest.values())
