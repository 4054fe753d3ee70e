"""The checks of the GPUs: against the order, and of their health.

Thresholds stand in `LIMITS`; the order of a table is the order of weight. Units
are NVML's: bytes, milliwatts, °C, percent. docs/verdict.md has the sources.
"""

from __future__ import annotations

import re

from .check import HOST, MIND, NA, PASS, RETURN, SLOWER, WARN, WRONG, Check, Found, Reading
from .order import Order

GIB = 1024**3

LIMITS = {
    "memory": 0.96,  # a 24 GB card shows 23.99 GiB or less
    "memory_ecc": 0.96 * 15 / 16,  # GDDR cards keep 1/16 for ECC: A10, L4, L40S, T4
    "used": 1.0,  # GiB
    "power": 0.99,  # of the default; some cards round
    "heat": 10,
    "busy": 20,  # below, a link that stepped down is a link at rest
}
THROTTLE = {0x8: "hardware slow-down", 0x40: "too hot", 0x80: "power brake"}
MODES = {0: "default", 1: "one thread", 2: "prohibited", 3: "one process"}
WEAKER = {"d", "laptop", "mobile", "max"}  # 4090 D, 4090 Laptop GPU, PRO 6000 Max-Q


def version(text: str) -> list[int]:
    """The numbers of a dotted version, for comparing."""
    return [int(n) for n in re.findall(r"\d+", re.sub(r"(\.0+)+$", "", text))]


def at_least(what: str, here: str, asked: str | None) -> Found:
    """A version that is new enough."""
    if asked is None:
        return Found(PASS, here)
    expected = f"{asked} or newer"
    if version(here) < version(asked):
        return Found(RETURN, here, expected, f"the driver {what} {here}, needed is {asked}")
    return Found(PASS, here, expected)


def judge_driver(order: Order, driver: str) -> Found:
    """The driver is new enough."""
    return at_least("is", driver, order.min_driver)


def judge_cuda(order: Order, cuda: int) -> Found:
    """The driver runs a CUDA that is new enough."""
    return at_least("runs CUDA up to", cuda_version(cuda), order.min_cuda)


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


def judge_name(order: Order, name: str) -> Found:
    """Every word of the ordered name is in the card's."""
    asked, words = (re.findall(r"[a-z0-9]+", (n or "").lower()) for n in (order.name, name))
    expected = order.name or ""
    if not all(fits(word, words) for word in asked):
        return Found(RETURN, name, expected, f"is a {name}, ordered was {expected}")
    if asked and WEAKER & set(words) - set(asked):
        return Found(WARN, name, expected, f"is a {name}, slower than the {expected} ordered")
    return Found(PASS, name, expected)


def judge_count(order: Order, usable: int) -> Found:
    """As many GPUs as ordered."""
    if order.count is None:
        return Found(PASS, str(usable))
    expected = str(order.count)
    if usable == order.count:
        return Found(PASS, expected, expected)
    outcome = RETURN if usable < order.count else WARN
    says = f"GPUs that can be used: {usable}, ordered: {order.count}"
    return Found(outcome, str(usable), expected, says)


def judge_memory(order: Order, memory: dict[str, int], ecc: list[int] | None) -> Found:
    """At least the ordered memory, with tolerance."""
    here = memory["total"] / GIB
    read = f"{here:.1f} GiB"
    if order.min_memory_gib is None:
        return Found(PASS, read)
    asked = f"{order.min_memory_gib:g} GiB"
    if here >= LIMITS["memory_ecc" if ecc and ecc[0] else "memory"] * order.min_memory_gib:
        return Found(PASS, read, asked)
    return Found(RETURN, read, asked, f"has {read} of memory, ordered were {asked}")


def judge_ecc(_order: Order, now: int, ever: int | None) -> Found:
    """No memory error that couldn't be corrected."""
    if now:
        says = f"uncorrected memory errors since the driver started: {now}"
        return Found(RETURN, f"{now} uncorrected", "none", says)
    if ever:
        says = f"uncorrected memory errors in its life, none of late: {ever}"
        return Found(WARN, f"{ever} in its life", "none", says)
    return Found(PASS, "none", "none")


def judge_remapped(_order: Order, rows: list[int]) -> Found:
    """Spare memory rows could take the place of bad ones."""
    corrected, uncorrected, pending, failed = rows
    if failed:
        return Found(RETURN, "failed", "none failed", "a bad memory row could not be replaced")
    if pending:
        says = "a bad memory row waits for a reset to be replaced"
        return Found(RETURN, "pending", "none pending", says)
    return Found(PASS, f"{corrected + uncorrected} replaced", "none failed")


def judge_retired(_order: Order, pending: int) -> Found:
    """No bad memory page waits to be taken out of use."""
    if pending:
        return Found(RETURN, "pending", "none pending", "bad memory pages wait for a reset")
    return Found(PASS, "none pending", "none pending")


def judge_used(_order: Order, memory: dict[str, int]) -> Found:
    """Nobody else holds memory of the card."""
    read, expected = f"{memory['used'] / GIB:.1f} GiB", f"{LIMITS['used']:g} GiB at most"
    if memory["used"] / GIB > LIMITS["used"]:
        says = f"{read} of its memory are in use before anything was started"
        return Found(RETURN, read, expected, says)
    return Found(PASS, read, expected)


def judge_mig(order: Order, modes: list[int]) -> Found:
    """The card is whole, unless slices were ordered."""
    read, expected = ("on" if mode else "off" for mode in (modes[0], order.mig))
    if read == expected:
        return Found(PASS, read, expected)
    says = "isn't cut into slices (MIG)" if order.mig else "is cut into slices (MIG)"
    return Found(RETURN, read, expected, says)


def judge_mode(_order: Order, mode: int) -> Found:
    """Programs may use the card as usual."""
    read = MODES.get(mode, "unknown")
    if mode:
        return Found(RETURN, read, MODES[0], f"its compute mode is '{read}'")
    return Found(PASS, read, read)


def judge_nvlink(order: Order, links: list[int]) -> Found:
    """NVLinks are up, where they were ordered; cards without a bridge have them down."""
    read, expected = f"{sum(links)} of {len(links)} up", "all up" if order.nvlink else ""
    if order.nvlink and not all(links):
        says = f"{sum(links)} of {len(links)} NVLinks are up"
        return Found(WARN if any(links) else RETURN, read, expected, says)
    return Found(PASS if any(links) else NA, read, expected)


def judge_power(order: Order, limit: int, default: int | None) -> Found:
    """The card may draw the power that was ordered, and that it was built for."""
    watts, asked = limit // 1000, order.min_power_watts
    read = f"{watts} W"
    if asked is not None and watts < asked * LIMITS["power"]:
        says = f"is held to {watts} W, ordered were {asked:g}"
        return Found(RETURN, read, f"{asked:g} W", says)
    if default and limit < default * LIMITS["power"]:
        built = f"{default // 1000} W"
        return Found(WARN, read, built, f"is held to {watts} W of {built}")
    if asked is not None:
        return Found(PASS, read, f"{asked:g} W")
    return Found(PASS, read, f"{default // 1000} W") if default else Found(NA, read)


def judge_throttle(_order: Order, reasons: int) -> Found:
    """The hardware doesn't slow the card down."""
    why = ", ".join(says for bit, says in THROTTLE.items() if reasons & bit)
    if why:
        return Found(WARN, why, "none", f"slows itself down: {why}")
    return Found(PASS, "none", "none")


def judge_heat(_order: Order, now: int, slowdown: int | None, margin: int | None) -> Found:
    """Room is left before the card slows itself down."""
    room = margin if slowdown is None else slowdown - now
    if room is None:
        return Found(NA, f"{now} °C")
    read, expected = f"{room} °C below slow-down", f"more than {LIMITS['heat']} °C"
    if room <= LIMITS["heat"]:
        return Found(WARN, read, expected, f"is at {now} °C, {room} °C below its slow-down")
    return Found(PASS, read, expected)


def bus(width: object, generation: object) -> str:
    """A link, or what was asked of one, in words."""
    parts = (("x{}", width), ("generation {}", generation))
    return " ".join(form.format(value) for form, value in parts if value is not None)


def short_of(here: int | None, asked: int | None) -> bool:
    """Whether a reading that is there stays under what was ordered."""
    return here is not None and asked is not None and here < asked


def judge_pcie(order: Order, *readings: Reading) -> Found:
    """The bus can do what was ordered, and under load does what it can; at rest it steps down."""
    width, widest, generation, newest, load = readings
    asked = (order.min_pcie_width, order.min_pcie_generation)
    read, can, ordered = bus(width, generation), bus(widest, newest), bus(*asked)
    if short_of(widest, asked[0]) or short_of(newest, asked[1]):
        return Found(RETURN, can, ordered, f"its bus can do {can}, ordered was {ordered}")
    if None not in readings and (width, generation) == (widest, newest):
        return Found(PASS, read, ordered or can)
    if load is None or load["gpu"] < LIMITS["busy"]:
        return Found(NA, f"{read} at rest", ordered or can)
    if short_of(width, asked[0]) or short_of(generation, asked[1]):
        return Found(RETURN, read, ordered, f"its bus is {read} under load, ordered was {ordered}")
    if None in readings:
        return Found(NA, read, ordered or can)
    return Found(WARN, read, can, f"its bus is {read} of {can}, under load")


def judge_persistence(_order: Order, on: int) -> Found:
    """A note only: containers may read "off" whatever it is."""
    return Found(PASS, "on" if on else "off")


DRIVER = "Return this box and rent one with a newer driver."
SHARED = "Stop what you left running there; if it isn't yours, the card is shared: return this box."
MODE = "As root: nvidia-smi -c DEFAULT. Where that isn't allowed, return this box."
MORE = "There is more than was ordered: compare with what you pay."
PCIE = ("pcie_width", "pcie_max_width", "pcie_gen", "pcie_max_gen", "load")
PCIE_ASKS = ("min_pcie_generation", "min_pcie_width")
POWER_ASKS = ("min_power_watts",)
HEAT = ("temperature", "slowdown_at", "margin")
POWER = ("power_limit", "power_default")

WHOLE_CHECKS = (
    Check("count", "gpu-count", ("usable",), judge_count, WRONG, MORE),
    Check("driver", "gpu-driver", ("driver",), judge_driver, DRIVER, asks=("min_driver",)),
    Check("cuda", "gpu-cuda", ("cuda",), judge_cuda, DRIVER, asks=("min_cuda",)),
)
GPU_CHECKS = (
    Check("name", "gpu-name", ("name",), judge_name, WRONG),
    Check("memory", "gpu-memory", ("memory", "ecc_mode"), judge_memory, WRONG),
    Check("ecc", "gpu-ecc", ("ecc_now", "ecc_ever"), judge_ecc, HOST),
    Check("remapped-rows", "gpu-remapped", ("remapped",), judge_remapped, HOST),
    Check("retired-pages", "gpu-retired", ("retired",), judge_retired, HOST),
    Check("memory-used", "gpu-used", ("memory",), judge_used, SHARED, MIND, idle=True),
    Check("mig", "gpu-mig", ("mig",), judge_mig, WRONG, asks=("mig",)),
    Check("compute-mode", "gpu-mode", ("compute_mode",), judge_mode, MODE),
    Check("nvlink", "gpu-nvlink", ("nvlink",), judge_nvlink, HOST, asks=("nvlink",)),
    Check("power-limit", "gpu-power", POWER, judge_power, WRONG, SLOWER, asks=POWER_ASKS),
    Check("throttling", "gpu-throttle", ("throttle",), judge_throttle, HOST, SLOWER, idle=True),
    Check("heat", "gpu-hot", HEAT, judge_heat, HOST, SLOWER, idle=True),
    Check("pcie", "gpu-bus", PCIE, judge_pcie, WRONG, SLOWER, asks=PCIE_ASKS),
    Check("persistence", "", ("persistence",), judge_persistence),
)
