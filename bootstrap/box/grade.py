"""What the smoke test found, judged. Pure: readings in, rows of the verdict out.

A wrong result returns the box. A speed far under the model's is a warning; the thresholds
stand in `expected.py`. What wasn't tried, or has no row in the table, is "n/a".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .check import HOST, MIND, NA, PASS, RETURN, SLOWER, WARN
from .expected import LEAST, Model, model_of
from .judge import Row

GIB, GB, TERA = 1024**3, 1e9, 1e12
ENOUGH = 0.8  # of the memory, for the full test

RESTART = "Restart the instance once; if it stays so, return this box."
LOG = "See why: boxstrap logs --step smoke. Trying it again costs seconds: boxstrap verify."

# NVML's clocks event reasons that healthy hardware under load doesn't have.
THROTTLE = {
    0x8: "hardware slow-down",
    0x20: "too hot (software)",
    0x40: "too hot",
    0x80: "power brake",
}


@dataclass
class Tried:
    """One GPU: what it is, what `burn.py` said of it, what NVML saw meanwhile."""

    index: int
    name: str | None
    mode: str
    parts: dict[str, Any]
    """Part and value; a part that was begun and never ended has None."""
    samples: list[dict[str, Any]] = field(default_factory=list)
    """Looks of `watch.py` at this GPU while it worked."""
    ended: str = ""
    """"hang" or "crash" where the worker did not end by itself."""

    def value(self, part: str) -> dict[str, Any] | None:
        """What a part said; None where it failed or was not done."""
        found = self.parts.get(part)
        return found if isinstance(found, dict) and "error" not in found else None

    def error(self, part: str) -> str:
        """Why a part failed; "" where it didn't."""
        found = self.parts.get(part)
        return str(found.get("error", "")) if isinstance(found, dict) else ""


def grade(tried: Tried) -> list[Row]:
    """Every row of one GPU."""
    if tried.ended:
        return [unfinished(tried)]
    failed = [row for row in (broken(tried, part) for part in tried.parts) if row]
    model = model_of(tried.name)
    return [
        *failed,
        *memory(tried),
        *product(tried),
        *stable(tried),
        *speed(tried, model),
        *memory_speed(tried, model),
        *bus(tried, model),
        *throttling(tried),
    ]


def wrong(tried: Tried, check: str, read: str, says: str, code: str = "smoke-failed") -> Row:
    """A result for which the box is returned."""
    return Row(check, tried.index, RETURN, read, "", says, code, HOST, MIND)


def undone(tried: Tried, says: str) -> Row:
    """The test itself failed, which says nothing of the card."""
    return Row("smoke", tried.index, WARN, "not tried", "", says, "smoke-undone", LOG, LOG)


def unfinished(tried: Tried) -> Row:
    """The worker hung or died: what it was doing decides whose fault it is."""
    doing = next((part for part, value in tried.parts.items() if value is None), "its start")
    says = {"hang": "gave no answer in time", "crash": "ended the program"}[tried.ended]
    if doing in ("its start", "library"):
        return undone(tried, f"the test itself {says}")
    return wrong(tried, "smoke", tried.ended, f"it {says}, at {doing}")


def broken(tried: Tried, part: str) -> Row | None:
    """A part that raised."""
    error = tried.error(part)
    if not error:
        return None
    if part == "library":
        return undone(tried, error)
    if part == "start":
        says = f"CUDA can't start on it, though the driver answers: {error}"
        return wrong(tried, "smoke", "CUDA can't start", says)._replace(advice=RESTART)
    if "out of memory" in error.lower():
        return Row(f"smoke-{part}", tried.index, NA, "too little of its memory was free")
    return wrong(tried, "smoke", part, f"{part}: {error}")


def memory(tried: Tried) -> list[Row]:
    """Every word of the pattern came back."""
    found = tried.value("memory")
    if found is None:
        return []
    share = found["bytes"] / found["total"]
    looked = f"{found['bytes'] / GIB:.1f} GiB ({share:.0%})"
    name = "smoke-memory"
    if found["wrong"]:
        read = f"{found['wrong']} wrong words in {looked}"
        return [wrong(tried, name, read, f"its memory gave back {read}", "smoke-memory")]
    if tried.mode == "full" and share < ENOUGH:
        return [Row(name, tried.index, NA, f"{looked} right; no more was free", f"{ENOUGH:.0%}")]
    return [Row(name, tried.index, PASS, f"{looked} right")]


def product(tried: Tried) -> list[Row]:
    """Products of whole numbers are exact."""
    found = tried.value("product")
    if found is None:
        return []
    ills = counted(found["wrong"])
    if ills:
        read = f"wrong rows of {found['rows']}: {ills}"
        return [wrong(tried, "smoke-product", read, f"it multiplies: {read}", "smoke-product")]
    return [Row("smoke-product", tried.index, PASS, f"exact in {', '.join(found['wrong'])}")]


def stable(tried: Tried) -> list[Row]:
    """The same product comes out the same each time."""
    found = tried.value("stable")
    if found is None:
        return []
    ills = counted(found["different"])
    if ills:
        read = f"other bits in {ills} of {found['repeats']} times"
        says = f"the same product comes out differently: {read}"
        return [wrong(tried, "smoke-stable", read, says, "smoke-unstable")]
    return [Row("smoke-stable", tried.index, PASS, f"the same bits {found['repeats']} times")]


def counted(by_kind: dict[str, int]) -> str:
    """The kinds of number that something was counted of."""
    return ", ".join(f"{kind} {count}" for kind, count in by_kind.items() if count)


def speed(tried: Tried, model: Model | None) -> list[Row]:
    """TFLOP/s of each kind of number, beside the model's."""
    found = tried.value("speed")
    if found is None:
        return []
    here = {kind: value / TERA for kind, value in found.items()}
    peaks = {kind: peak for kind in here if model and (peak := model.speed(kind))}
    slow = model is not None and any(
        here[kind] < peak * model.least_speed() for kind, peak in peaks.items()
    )
    return [compared(tried, "smoke-speed", "TFLOP/s", here, peaks, slow, "smoke-slow")]


def memory_speed(tried: Tried, model: Model | None) -> list[Row]:
    """GB/s of the device's memory, beside the model's."""
    found = tried.value("bandwidth")
    if found is None:
        return []
    here = {"": found["device"] / GB}
    peaks = {"": model.memory} if model else {}
    slow = model is not None and here[""] < model.memory * LEAST["memory"]
    code = "smoke-memory-slow"
    return [compared(tried, "smoke-memory-speed", "GB/s", here, peaks, slow, code)]


def bus(tried: Tried, model: Model | None) -> list[Row]:
    """GB/s over the bus, beside the model's; with the link as NVML saw it meanwhile."""
    found = tried.value("bandwidth")
    if found is None:
        return []
    here = {"to it": found["to"] / GB, "from it": found["from"] / GB}
    peaks = {"": model.bus()} if model else {}
    slow = model is not None and min(here.values()) < model.bus() * LEAST["bus"]
    row = compared(tried, "smoke-bus", "GB/s", here, peaks, slow, "smoke-bus")
    seen = [(s["pcie_width"], s["pcie_gen"]) for s in tried.samples if s.get("pcie_gen")]
    link = "; the link: x{} generation {}".format(*max(seen)) if seen else ""
    return [row._replace(read=row.read + link, says=row.says + link if row.says else "")]


def throttling(tried: Tried) -> list[Row]:
    """The hardware didn't slow the card down under load."""
    seen = [sample for sample in tried.samples if sample.get("throttle") is not None]
    if not seen:
        return []
    why = [says for bit, says in THROTTLE.items() if any(s["throttle"] & bit for s in seen)]
    clock, power, heat = (
        max(s.get(key) or 0 for s in seen) for key in ("clock", "power", "temperature")
    )
    under = f"up to {clock} MHz, {power:.0f} W, {heat} °C"
    name, code = "smoke-throttling", "smoke-throttle"
    if why:
        read = f"{', '.join(why)}; {under}"
        says = f"slows itself down under load: {read}"
        return [Row(name, tried.index, WARN, read, "", says, code, HOST, SLOWER)]
    return [Row(name, tried.index, PASS, f"none; {under}")]


def compared(  # noqa: PLR0913, PLR0917 - what makes one row
    tried: Tried,
    check: str,
    unit: str,
    here: dict[str, float],
    peaks: dict[str, float],
    slow: bool,
    code: str,
) -> Row:
    """Speeds beside the table's."""
    read, expected = figures(here, unit), figures(peaks, unit)
    if not peaks:
        return Row(check, tried.index, NA, f"{read}; this model is not in the table")
    if slow:
        says = f"far under its model: {read}, of {expected}"
        return Row(check, tried.index, WARN, read, expected, says, code, SLOWER, SLOWER)
    return Row(check, tried.index, PASS, read, expected)


def figures(values: dict[str, float], unit: str) -> str:
    """Numbers with three digits that count, each after what it is of."""
    shown = (f"{kind} {v:.0f}" if v >= 100 else f"{kind} {v:.3g}" for kind, v in values.items())
    return ", ".join(text.strip() for text in shown) + f" {unit}"
