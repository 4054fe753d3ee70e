"""The checks of what slows a GPU down: links, power, heat, the bus.

Judges first, the table last, in order of weight; all weigh less than `gpu_checks.py`. Units are
NVML's: milliwatts, °C, percent.
"""

from __future__ import annotations

from typing import Any

from . import thresholds
from .check import HOST, NA, PASS, RETURN, SLOWER, WARN, WRONG, Check, Judgement, expect
from .expected_hardware import ExpectedHardware

THROTTLE = {0x8: "hardware slow-down", 0x40: "too hot", 0x80: "power brake"}


def judge_nvlink(wanted: ExpectedHardware, links: list[int]) -> Judgement:
    """NVLinks are up, where they were ordered; cards without a bridge have them down."""
    up = f"{sum(links)} of {len(links)}"
    if wanted.nvlink and not all(links):
        outcome = WARN if any(links) else RETURN
        return Judgement(outcome, f"{up} up", "all up", f"{up} NVLinks are up")
    return Judgement(PASS if any(links) else NA, f"{up} up", "all up" if wanted.nvlink else "")


def judge_power(wanted: ExpectedHardware, limit: int, default: int | None) -> Judgement:
    """The card may draw the power that was ordered, and that it was built for."""
    watts, asked, share = limit // 1000, wanted.min_power_watts, thresholds.GPU["power"]
    read, built = f"{watts} W", f"{(default or 0) // 1000} W"
    if asked is not None and watts < asked * share:
        says = f"is held to {watts} W, ordered were {asked:g}"
        return Judgement(RETURN, read, f"{asked:g} W", says)
    if default and limit < default * share:
        return Judgement(WARN, read, built, f"is held to {watts} W of {built}")
    if asked is not None:
        return Judgement(PASS, read, f"{asked:g} W")
    return Judgement(PASS, read, built) if default else Judgement(NA, read)


def judge_throttle(_wanted: ExpectedHardware, reasons: int) -> Judgement:
    """The hardware doesn't slow the card down."""
    why = ", ".join(says for bit, says in THROTTLE.items() if reasons & bit)
    return expect(not why, WARN, why or "none", "none", f"slows itself down: {why}")


def judge_heat(
    _wanted: ExpectedHardware, now: int, slowdown: int | None, margin: int | None
) -> Judgement:
    """Room is left before the card slows itself down."""
    room, least = margin if slowdown is None else slowdown - now, thresholds.GPU["heat"]
    if room is None:
        return Judgement(NA, f"{now} °C")
    says = f"is at {now} °C, {room} °C below its slow-down"
    read, expected = f"{room} °C below slow-down", f"more than {least} °C"
    return expect(room > least, WARN, read, expected, says)


def bus(width: object, generation: object) -> str:
    """Describe a link, or what was ordered of one."""
    parts = (("x{}", width), ("generation {}", generation))
    return " ".join(form.format(value) for form, value in parts if value is not None)


def short_of(here: int | None, asked: int | None) -> bool:
    """Return whether a reading, if there is one, is below what was ordered."""
    return here is not None and asked is not None and here < asked


def judge_pcie(wanted: ExpectedHardware, *readings: Any) -> Judgement:  # noqa: ANN401
    """The bus can do what was ordered, and under load does what it can; at rest it steps down."""
    width, widest, generation, newest, load = readings
    asked = (wanted.min_pcie_width, wanted.min_pcie_generation)
    read, can, ordered = bus(width, generation), bus(widest, newest), bus(*asked)
    if short_of(widest, asked[0]) or short_of(newest, asked[1]):
        return Judgement(RETURN, can, ordered, f"its bus can do {can}, ordered was {ordered}")
    if None not in readings and (width, generation) == (widest, newest):
        return Judgement(PASS, read, ordered or can)
    if load is None or load["gpu"] < thresholds.GPU["busy"]:
        return Judgement(NA, f"{read} at rest", ordered or can)
    if short_of(width, asked[0]) or short_of(generation, asked[1]):
        says = f"its bus is {read} under load, ordered was {ordered}"
        return Judgement(RETURN, read, ordered, says)
    if None in readings:
        return Judgement(NA, read, ordered or can)
    return Judgement(WARN, read, can, f"its bus is {read} of {can}, under load")


def judge_persistence(_wanted: ExpectedHardware, on: int) -> Judgement:
    """A note only: containers may read "off" even if it is on."""
    return Judgement(PASS, "on" if on else "off")


PCIE = ("pcie_width", "pcie_max_width", "pcie_gen", "pcie_max_gen", "load")
PCIE_ASKS = ("min_pcie_generation", "min_pcie_width")
POWER_ASKS = ("min_power_watts",)
HEAT = ("temperature", "slowdown_at", "margin")
POWER = ("power_limit", "power_default")

PERFORMANCE_CHECKS = (
    Check("nvlink", "gpu-nvlink", ("nvlink",), judge_nvlink, HOST, asks=("nvlink",)),
    Check("power-limit", "gpu-power", POWER, judge_power, WRONG, SLOWER, asks=POWER_ASKS),
    Check("throttling", "gpu-throttle", ("throttle",), judge_throttle, HOST, SLOWER, idle=True),
    Check("heat", "gpu-hot", HEAT, judge_heat, HOST, SLOWER, idle=True),
    Check("pcie", "gpu-bus", PCIE, judge_pcie, WRONG, SLOWER, asks=PCIE_ASKS),
    Check("persistence", "", ("persistence",), judge_persistence),
)
