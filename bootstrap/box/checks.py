"""The table of checks: what each reads, how it judges, what it advises.

A judge gets the order and its readings (None where the card has none) and
answers an outcome with a sentence. Thresholds are in `LIMITS`; the order of the
table is the order of weight. Units are NVML's: bytes, milliwatts, °C, percent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

PASS, WARN, RETURN, NA = "pass", "warn", "return", "n/a"
GIB = 1024**3
Reading = Any  # what NVML answered

LIMITS = {
    "memory": 0.96,  # a 24 GB card shows 23.99 GiB or less
    "memory_ecc": 0.96 * 15 / 16,  # GDDR cards keep 1/16 for ECC: A10, L4, L40S, T4
    "used": 1.0,  # GiB
    "power": 0.99,
    "heat": 10,
    "busy": 20,  # below, a link that stepped down is a link at rest
}
THROTTLE = {0x8: "hardware slow-down", 0x40: "too hot", 0x80: "power brake"}
MODES = {0: "default", 1: "one thread", 2: "prohibited", 3: "one process"}
SLOWER = {"d", "laptop", "mobile", "max"}  # 4090 D, 4090 Laptop GPU, PRO 6000 Max-Q


@dataclass(frozen=True)
class Order:
    """What the box should have; None is "whatever"."""

    require: bool = True
    count: int | None = None
    name: str | None = None
    min_memory_gib: float | None = None
    min_driver: str | None = None
    min_cuda: str | None = None
    mig: bool = False
    nvlink: bool = False
    run_alive: bool = False  # a run of ours lives on the box
    checks: dict[str, str] = field(default_factory=dict)  # name: outcome where it doesn't pass


class Check(NamedTuple):
    """One row: `code` says what is wrong; the first of what it `reads` must be there."""

    name: str
    code: str
    reads: tuple[str, ...]
    judge: Callable[..., tuple[str, str]]
    advice: str
    idle: bool = False  # n/a while a run of ours lives on the box


def version(text: str) -> list[int]:
    """The numbers of a dotted version, for comparing."""
    return [int(n) for n in re.findall(r"\d+", re.sub(r"(\.0+)+$", "", text))]


def at_least(what: str, here: str, asked: str | None) -> tuple[str, str]:
    """A version that is new enough."""
    old = asked is not None and version(here) < version(asked)
    return (RETURN, f"the driver {what} {here}, needed is {asked}") if old else (PASS, here)


def cuda_version(cuda: int) -> str:
    """12040 is 12.4."""
    return f"{cuda // 1000}.{cuda % 1000 // 10}"


def fits(word: str, words: list[str]) -> bool:
    """Whether the words of a card's name tell, or don't deny, one of the ordered name."""
    if word in words or any(word == a + b for a, b in zip(words, words[1:])):  # noqa: B905, RUF007
        return True
    if word.startswith("sxm"):  # an H100 SXM calls itself "NVIDIA H100 80GB HBM3"
        return not {"pcie", "nvl"} & set(words)
    sizes = re.compile(r"\d+gb$")
    return bool(sizes.match(word)) and not any(map(sizes.match, words))


def judge_name(order: Order, name: str) -> tuple[str, str]:
    """Every word of the ordered name is in the card's."""
    asked, words = (re.findall(r"[a-z0-9]+", (n or "").lower()) for n in (order.name, name))
    if not all(fits(word, words) for word in asked):
        return RETURN, f"is a {name}, ordered was {order.name}"
    if asked and SLOWER & set(words) - set(asked):
        return WARN, f"is a {name}, slower than the {order.name} ordered"
    return PASS, name


def judge_count(order: Order, usable: int) -> tuple[str, str]:
    """As many GPUs as ordered."""
    if order.count is None or usable == order.count:
        return PASS, str(usable)
    outcome = RETURN if usable < order.count else WARN
    return outcome, f"GPUs that can be used: {usable}, ordered: {order.count}"


def judge_memory(order: Order, memory: dict[str, int], ecc: list[int] | None) -> tuple[str, str]:
    """At least the ordered memory, with tolerance."""
    share = LIMITS["memory_ecc" if ecc and ecc[0] else "memory"]
    here = memory["total"] / GIB
    if here >= share * (order.min_memory_gib or 0):
        return PASS, f"{here:.1f} GiB"
    return RETURN, f"has {here:.1f} GiB of memory, ordered were {order.min_memory_gib:g}"


def judge_ecc(_order: Order, now: int, ever: int | None) -> tuple[str, str]:
    """No memory error that couldn't be corrected."""
    if now:
        return RETURN, f"uncorrected memory errors since the driver started: {now}"
    if ever:
        return WARN, f"uncorrected memory errors in its life, none of late: {ever}"
    return PASS, "no uncorrected error"


def judge_remapped(_order: Order, rows: list[int]) -> tuple[str, str]:
    """Spare memory rows could take the place of bad ones."""
    _, _, pending, failed = rows
    if failed:
        return RETURN, "a bad memory row could not be replaced"
    if pending:
        return RETURN, "a bad memory row waits for a reset to be replaced"
    return PASS, f"{rows[0] + rows[1]} replaced"


def judge_retired(_order: Order, pending: int) -> tuple[str, str]:
    """No bad memory page waits to be taken out of use."""
    return (RETURN, "bad memory pages wait for a reset") if pending else (PASS, "none pending")


def judge_used(_order: Order, memory: dict[str, int]) -> tuple[str, str]:
    """Nobody else holds memory of the card."""
    used = memory["used"] / GIB
    if used > LIMITS["used"]:
        return RETURN, f"{used:.1f} GiB of its memory are in use before anything was started"
    return PASS, f"{used:.1f} GiB"


def judge_mig(order: Order, modes: list[int]) -> tuple[str, str]:
    """The card is whole, unless slices were ordered."""
    if bool(modes[0]) == order.mig:
        return PASS, "on" if order.mig else "off"
    return RETURN, "isn't cut into slices (MIG)" if order.mig else "is cut into slices (MIG)"


def judge_mode(_order: Order, mode: int) -> tuple[str, str]:
    """Programs may use the card as usual."""
    says = MODES.get(mode, "unknown")
    return (RETURN, f"its compute mode is '{says}'") if mode else (PASS, says)


def judge_nvlink(order: Order, links: list[int]) -> tuple[str, str]:
    """NVLinks are up, where they were ordered; cards without a bridge have them down."""
    up = f"{sum(links)} of {len(links)} NVLinks are up"
    if order.nvlink and not all(links):
        return (WARN if any(links) else RETURN), up
    return (PASS if any(links) else NA), up


def judge_power(_order: Order, limit: int, default: int | None) -> tuple[str, str]:
    """The card may draw the power it was built for."""
    if default and limit < default * LIMITS["power"]:
        return WARN, f"is held to {limit // 1000} W of {default // 1000} W"
    return (PASS if default else NA), f"{limit // 1000} W"


def judge_throttle(_order: Order, reasons: int) -> tuple[str, str]:
    """The hardware doesn't slow the card down."""
    why = ", ".join(says for bit, says in THROTTLE.items() if reasons & bit)
    return (WARN, f"slows itself down: {why}") if why else (PASS, "none")


def judge_heat(
    _order: Order, now: int, slowdown: int | None, margin: int | None
) -> tuple[str, str]:
    """Room is left before the card slows itself down."""
    room = margin if slowdown is None else slowdown - now
    if room is None:
        return NA, f"{now} °C"
    return (WARN if room <= LIMITS["heat"] else PASS), f"{room} °C below slow-down"


def judge_bus(_order: Order, *readings: Reading) -> tuple[str, str]:
    """The bus is as wide and fast as the card can; tells only under load."""
    width, widest, gen, newest, load = readings
    if (width, gen) == (widest, newest):
        return PASS, f"x{width} generation {gen}"
    says = f"its bus is x{width} generation {gen} of x{widest} generation {newest}"
    if None in readings or load["gpu"] < LIMITS["busy"]:
        return NA, f"{says}, at rest"
    return WARN, f"{says}, under load"


HOST = "The host's owner must see to this card: return this box."
MIND = "It may do: return this box if training fails, or is slower than what you pay for."
OWNER = "It works, slower than it should: compare with what you pay."
DRIVER = "Return this box and rent one with a newer driver."
WRONG = "It isn't what you pay for: return this box."
SHARED = "Stop what you left running there; if it isn't yours, the card is shared: return this box."
MODE = "As root: nvidia-smi -c DEFAULT. Where that isn't allowed, return this box."
BUS = ("pcie_width", "pcie_max_width", "pcie_gen", "pcie_max_gen", "load")
HEAT = ("temperature", "slowdown_at", "margin")
POWER = ("power_limit", "power_default")

BOX_CHECKS = (
    Check("count", "gpu-count", ("usable",), judge_count, "Compare with what you pay."),
    Check(
        "driver", "gpu-driver", ("driver",), lambda o, v: at_least("is", v, o.min_driver), DRIVER
    ),
    Check(
        "cuda",
        "gpu-cuda",
        ("cuda",),
        lambda o, v: at_least("runs CUDA up to", cuda_version(v), o.min_cuda),
        DRIVER,
    ),
)
GPU_CHECKS = (
    Check("name", "gpu-name", ("name",), judge_name, WRONG),
    Check("memory", "gpu-memory", ("memory", "ecc_mode"), judge_memory, WRONG),
    Check("ecc", "gpu-ecc", ("ecc_now", "ecc_ever"), judge_ecc, HOST),
    Check("remapped rows", "gpu-remapped", ("remapped",), judge_remapped, HOST),
    Check("retired pages", "gpu-retired", ("retired",), judge_retired, HOST),
    Check("memory used", "gpu-used", ("memory",), judge_used, SHARED, idle=True),
    Check("mig", "gpu-mig", ("mig",), judge_mig, WRONG),
    Check("compute mode", "gpu-mode", ("compute_mode",), judge_mode, MODE),
    Check("nvlink", "gpu-nvlink", ("nvlink",), judge_nvlink, HOST),
    Check("power limit", "gpu-power", POWER, judge_power, OWNER),
    Check("throttling", "gpu-throttle", ("throttle",), judge_throttle, OWNER, idle=True),
    Check("heat", "gpu-hot", HEAT, judge_heat, OWNER, idle=True),
    Check("bus", "gpu-bus", BUS, judge_bus, OWNER),
    # A note only: containers may read "off" whatever it is.
    Check("persistence", "", ("persistence",), lambda _, on: (PASS, "on" if on else "off"), ""),
)
