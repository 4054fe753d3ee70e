"""The checks of the GPUs: are they as ordered, sound, and free? Then what slows them down.

Judges first, each table after them, in order of weight. Memory is in bytes; other units are NVML's:
milliwatts, °C, percent.
"""

from __future__ import annotations

import re
from typing import Any

from . import thresholds
from .check import (
    GIB,
    HOST,
    NA,
    PASS,
    RETURN,
    SLOWER,
    WARN,
    WRONG,
    Check,
    Judgement,
    Reading,
    expect,
)
from .expected_hardware import ExpectedHardware
from .gpu_models import difference, least_gib, ordered_gib

MODES = {0: "default", 1: "one thread", 2: "prohibited", 3: "one process"}


def version(text: str) -> list[int]:
    """Return the numbers of a dotted version, for comparison."""
    return [int(n) for n in re.findall(r"\d+", re.sub(r"(\.0+)+$", "", text))]


def at_least(what: str, here: str, asked: str | None) -> Judgement:
    if asked is None:
        return Judgement(PASS, here)
    says = f"the driver {what} {here}, but {asked} is required"
    return expect(version(here) >= version(asked), RETURN, here, f"{asked} or newer", says)


def judge_driver(wanted: ExpectedHardware, driver: str) -> Judgement:
    """The driver is new enough."""
    return at_least("is", driver, wanted.min_driver)


def judge_cuda(wanted: ExpectedHardware, cuda: int) -> Judgement:
    """The driver runs a CUDA that is new enough."""
    return at_least("runs CUDA up to", cuda_version(cuda), wanted.min_cuda)


def cuda_version(cuda: int) -> str:
    """Format NVML's number of a CUDA version: 12040 is 12.4."""
    return f"{cuda // 1000}.{cuda % 1000 // 10}"


def judge_name(wanted: ExpectedHardware, name: str) -> Judgement:
    """The card is of an ordered model."""
    expected = wanted.name or ""
    found = {difference(one, name) for one in expected.split(",")}
    if not wanted.name or "" in found:
        return Judgement(PASS, name, expected)
    if "weaker" in found:
        says = f"is a {name}, slower than the {expected} ordered"
        return Judgement(WARN, name, expected, says)
    return Judgement(RETURN, name, expected, f"is a {name}, ordered was {expected}")


def judge_count(wanted: ExpectedHardware, usable: int) -> Judgement:
    """As many GPUs as ordered, or slices of them (MIG)."""
    if wanted.count is None:
        return Judgement(PASS, str(usable))
    outcome = RETURN if usable < wanted.count else WARN
    says = f"GPUs that can be used: {usable}, ordered: {wanted.count}"
    return expect(usable == wanted.count, outcome, str(usable), str(wanted.count), says)


def judge_memory(
    wanted: ExpectedHardware,
    memory: dict[str, int],
    ecc: list[int] | None,
    is_slice: Reading = None,
) -> Judgement:
    """At least the ordered memory, with tolerance."""
    here, asked = memory["total"] / GIB, wanted.min_memory_gib or ordered_gib(wanted.name)
    read = f"{here:.1f} GiB"
    if asked is None:
        return Judgement(PASS, read)
    of_slice = asked * thresholds.GPU["memory_slice"]
    enough = here >= (of_slice if is_slice else least_gib(asked, bool(ecc and ecc[0])))
    says = f"has {read} of memory, ordered were {asked:g} GiB"
    return expect(enough, RETURN, read, f"{asked:g} GiB", says)


def judge_ecc(_wanted: ExpectedHardware, now: int, ever: int | None) -> Judgement:
    """No memory error that couldn't be corrected."""
    if now:
        says = f"uncorrected memory errors since the driver started: {now}"
        return Judgement(RETURN, f"{now} uncorrected", "none", says)
    says = f"uncorrected memory errors in its lifetime, none since the driver started: {ever}"
    return expect(not ever, WARN, f"{ever} in its life" if ever else "none", "none", says)


def judge_remapped(_wanted: ExpectedHardware, rows: list[int]) -> Judgement:
    """Spare memory rows could take the place of bad ones."""
    corrected, uncorrected, pending, failed = rows
    if failed:
        return Judgement(RETURN, "failed", "none failed", "a bad memory row could not be replaced")
    if pending:
        says = "a bad memory row waits for a reset to be replaced"
        return Judgement(RETURN, "pending", "none pending", says)
    return Judgement(PASS, f"{corrected + uncorrected} replaced", "none failed")


def judge_retired(_wanted: ExpectedHardware, pending: int) -> Judgement:
    """No bad memory page waits to be taken out of use."""
    read = "pending" if pending else "none pending"
    return expect(not pending, RETURN, read, "none pending", "bad memory pages wait for a reset")


def judge_used(_wanted: ExpectedHardware, memory: dict[str, int]) -> Judgement:
    """Nobody else holds memory of the card."""
    used, most = memory["used"] / GIB, thresholds.GPU["used_gib"]
    says = f"{used:.1f} GiB of its memory are in use before anything was started"
    return expect(used <= most, RETURN, f"{used:.1f} GiB", f"{most:g} GiB at most", says)


def judge_mig(wanted: ExpectedHardware, modes: list[int], slices: Reading = None) -> Judgement:
    """The card is whole, unless slices were ordered: then it has one at least."""
    read, expected = ("on" if mode else "off" for mode in (modes[0], wanted.mig))
    says = "isn't cut into slices (MIG)" if wanted.mig else "is cut into slices (MIG)"
    if wanted.mig and modes[0] and not slices:
        unknown = slices is None
        says = "its slices (MIG) can't be read" if unknown else "has no slice (MIG) to compute on"
        return Judgement(WARN if unknown else RETURN, "on, no slice", "a slice", says)
    return expect(read == expected, RETURN, read, expected, says)


def judge_mode(_wanted: ExpectedHardware, mode: int) -> Judgement:
    """Programs may use the card as usual."""
    read = MODES.get(mode, "unknown")
    return expect(not mode, RETURN, read, MODES[0], f"its compute mode is '{read}'")


DRIVER = "Return this box and rent one with a newer driver."
SHARED = "Stop what you left running there; if it isn't yours, the card is shared: return this box."
MODE = "As root: nvidia-smi -c DEFAULT. Where that isn't allowed, return this box."
MORE = "There is more than was ordered: compare with what you pay."

WHOLE_CHECKS = (
    Check("count", "gpu-count", ("usable",), judge_count, WRONG, MORE, asks=("count",)),
    Check("driver", "gpu-driver", ("driver",), judge_driver, DRIVER, asks=("min_driver",)),
    Check("cuda", "gpu-cuda", ("cuda",), judge_cuda, DRIVER, asks=("min_cuda",)),
)
SOUND_CHECKS = (
    Check("name", "gpu-name", ("name",), judge_name, WRONG, asks=("name",)),
    Check(
        "memory",
        "gpu-memory",
        ("memory", "ecc_mode", "slice"),
        judge_memory,
        WRONG,
        asks=("min_memory_gib",),
    ),
    Check("ecc", "gpu-ecc", ("ecc_now", "ecc_ever"), judge_ecc, HOST),
    Check("remapped-rows", "gpu-remapped", ("remapped",), judge_remapped, HOST),
    Check("retired-pages", "gpu-retired", ("retired",), judge_retired, HOST),
    Check("memory-used", "gpu-used", ("memory",), judge_used, SHARED, idle=True),
    Check("mig", "gpu-mig", ("mig", "slices"), judge_mig, WRONG, asks=("mig",)),
    Check("compute-mode", "gpu-mode", ("compute_mode",), judge_mode, MODE),
)


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
