"""What was ordered, as the profile says it; None is "whatever"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class BoxOrder:
    """What the machine should have: the keys `box.min_*` of a profile."""

    min_cpus: float | None = None
    min_memory_gib: float | None = None
    min_shm_gib: float | None = None
    min_disk_gib: float | None = None


@dataclass(frozen=True)
class Order:
    """What the box should have: the keys of `gpu` in a profile."""

    require: bool = True
    count: int | None = None
    name: str | None = None
    min_memory_gib: float | None = None
    min_driver: str | None = None
    min_cuda: str | None = None
    min_power_watts: float | None = None
    min_pcie_generation: int | None = None
    min_pcie_width: int | None = None
    mig: bool = False
    nvlink: bool = False
    strict: bool = False  # a warning is a reason to return
    checks: dict[str, str] = field(default_factory=dict)  # name: a word of `check.OVERRIDES`
    box: BoxOrder = field(default_factory=BoxOrder)
    run_alive: bool = False  # a run of ours lives on the box


def parse_order(text: str) -> Order:
    """The order of a JSON document with the keys of `Order`. Raises ValueError, TypeError."""
    values: Any = json.loads(text)
    if not isinstance(values, Mapping):
        raise TypeError("it is no mapping")
    return Order(**{**values, "box": BoxOrder(**values.get("box", {}))})
