"""The hardware that a profile orders, as the box reads it (`gpu.order`); None means "any"."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class ExpectedMachine(NamedTuple):
    """What the machine should have: the keys `box.min_*` of a profile."""

    min_cpus: float | None = None
    min_memory_gib: float | None = None
    min_shm_gib: float | None = None
    min_disk_gib: float | None = None


class ExpectedHardware(NamedTuple):
    """What the box should have: the keys of `gpu` in a profile."""

    require: bool = True
    count: int | None = None  # type: ignore[assignment]  # hides tuple.count, which nothing uses
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
    checks: Mapping[str, str] = MappingProxyType({})  # name of a check: a key of OVERRIDES
    box: ExpectedMachine = ExpectedMachine()
    run_alive: bool = False  # a run of boxstrap's is alive on the box


def parse_expected(text: str) -> ExpectedHardware:
    """Parse JSON with the keys of `ExpectedHardware`. Raises ValueError, TypeError."""
    values: Any = json.loads(text)
    if not isinstance(values, Mapping):
        raise TypeError("it is not a mapping")
    return ExpectedHardware(**{**values, "box": ExpectedMachine(**values.get("box", {}))})
