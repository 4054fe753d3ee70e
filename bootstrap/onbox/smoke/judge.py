"""Judge what the smoke test found. Pure: readings in, results of the verdict out.

A wrong result returns the box. A speed far below the model's (`peaks.py`) is a warning;
`thresholds.py` says how far. What wasn't tried, or has no row in the table, is "n/a".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..verdict import thresholds
from ..verdict.check import ADVICE_WARN, GIB, HOST, NA, PASS, RETURN, SLOWER, WARN
from ..verdict.judge import CheckResult
from .peaks import GpuPeaks, model_of

GB, TERA = 1e9, 1e12

RESTART = "Restart the instance once; if the problem remains, return this box."
NO_P2P = (
    'Set env: {NCCL_P2P_DISABLE: "1"} in the profile; a training over several GPUs hangs without.'
)
NO_TALK = "A small /dev/shm can be the cause (see its check); if it isn't, return this box."
LOG = "See why: boxstrap logs --step smoke. Trying it again costs seconds: boxstrap verify."

# NVML's clocks event reasons that healthy hardware under load doesn't have.
THROTTLE = {
    0x8: "hardware slow-down",
    0x20: "too hot (software)",
    0x40: "too hot",
    0x80: "power brake",
}


@dataclass
class GpuTrial:
    """The test of one GPU: what `stress.py` reported, and what NVML showed during it."""

    index: int
    name: str | None
    mode: str
    parts: dict[str, Any]
    """Values by part; None for a part that started and never ended."""
    samples: list[dict[str, Any]] = field(default_factory=list)
    """Samples of this GPU by `top_stream.py` during the test."""
    ended: str = ""
    """"hang" or "crash" if the worker did not end on its own, else ""."""

    def value(self, part: str) -> dict[str, Any] | None:
        """Return what a part reported; None if it failed or was not done."""
        found = self.parts.get(part)
        return found if isinstance(found, dict) and "error" not in found else None

    def error(self, part: str) -> str:
        """Return why a part failed; "" if it didn't."""
        found = self.parts.get(part)
        return str(found.get("error", "")) if isinstance(found, dict) else ""


def judge_trial(trial: GpuTrial) -> list[CheckResult]:
    if trial.ended:
        return [unfinished(trial)]
    failed = [failure for part in trial.parts if (failure := broken(trial, part))]
    model = model_of(trial.name)
    found = [(judge, trial.value(part)) for judge, part in JUDGES]
    return [
        *failed,
        *(judge(trial, value, model) for judge, value in found if value is not None),
        *throttling(trial),
    ]


def wrong(
    trial: GpuTrial, check: str, read: str, says: str, code: str = "smoke-failed"
) -> CheckResult:
    """Make a result for which the box is returned."""
    return CheckResult(check, trial.index, RETURN, read, "", says, code, HOST, ADVICE_WARN)


def undone(trial: GpuTrial, says: str) -> CheckResult:
    """Make a result for a test that failed itself, which says nothing about the card."""
    return CheckResult("smoke", trial.index, WARN, "not tried", "", says, "smoke-undone", LOG, LOG)


def unfinished(trial: GpuTrial) -> CheckResult:
    """Judge a worker that hung or died: the part it was in decides what is at fault."""
    doing = next((part for part, value in trial.parts.items() if value is None), "its start")
    says = {"hang": "gave no answer in time", "crash": "crashed"}[trial.ended]
    if doing in ("its start", "library"):
        return undone(trial, f"the test itself {says}")
    return wrong(trial, "smoke", trial.ended, f"it {says}, at {doing}")


def broken(trial: GpuTrial, part: str) -> CheckResult | None:
    """Judge a part that raised an error; None if it didn't."""
    error = trial.error(part)
    if not error:
        return None
    if part == "library":
        return undone(trial, error)
    if part == "start":
        says = f"CUDA can't start on it, though the driver answers: {error}"
        return wrong(trial, "smoke", "CUDA can't start", says)._replace(advice=RESTART)
    if "out of memory" in error.lower():
        read = "too little of its memory was free"
        return CheckResult(f"smoke-{part}", trial.index, NA, read)
    return wrong(trial, "smoke", part, f"{part}: {error}")


def memory(trial: GpuTrial, found: dict[str, Any], _model: GpuPeaks | None) -> CheckResult:
    """Check that every word of the pattern came back."""
    share, enough = found["bytes"] / found["total"], thresholds.SMOKE["tried_memory"]
    looked = f"{found['bytes'] / GIB:.1f} GiB ({share:.0%})"
    name = "smoke-memory"
    if found["wrong"]:
        read = f"{found['wrong']} wrong words in {looked}"
        return wrong(trial, name, read, f"its memory gave back {read}", "smoke-memory")
    if trial.mode == "full" and share < enough:
        read = f"{looked} right; no more was free"
        return CheckResult(name, trial.index, NA, read, f"{enough:.0%}")
    return CheckResult(name, trial.index, PASS, f"{looked} right")


def product(trial: GpuTrial, found: dict[str, Any], _model: GpuPeaks | None) -> CheckResult:
    """Check that products of whole numbers are exact."""
    name, kinds = "smoke-product", counted(found["wrong"])
    if kinds:
        read = f"wrong rows of {found['rows']}: {kinds}"
        return wrong(trial, name, read, f"it multiplies: {read}", "smoke-product")
    return CheckResult(name, trial.index, PASS, f"exact in {', '.join(found['wrong'])}")


def stable(trial: GpuTrial, found: dict[str, Any], _model: GpuPeaks | None) -> CheckResult:
    """Check that the same product has the same bits each time."""
    name, kinds = "smoke-stable", counted(found["different"])
    if kinds:
        read = f"other bits in {kinds} of {found['repeats']} times"
        says = f"the same product comes out differently: {read}"
        return wrong(trial, name, read, says, "smoke-unstable")
    return CheckResult(name, trial.index, PASS, f"the same bits {found['repeats']} times")


def counted(by_kind: dict[str, int]) -> str:
    """List the kinds of number with a count above zero."""
    return ", ".join(f"{kind} {count}" for kind, count in by_kind.items() if count)


def speed(trial: GpuTrial, found: dict[str, Any], model: GpuPeaks | None) -> CheckResult:
    """Compare the TFLOP/s of each kind of number with the model's."""
    here = {kind: value / TERA for kind, value in found.items()}
    peaks = {kind: peak for kind in here if model and (peak := model.speed(kind))}
    slow = model is not None and any(
        here[kind] < peak * model.least_speed() for kind, peak in peaks.items()
    )
    return compared(trial, "smoke-speed", "TFLOP/s", here, peaks, slow, "smoke-slow")


def memory_speed(trial: GpuTrial, found: dict[str, Any], model: GpuPeaks | None) -> CheckResult:
    """Compare the GB/s of the device's memory with the model's."""
    here = {"": found["device"] / GB}
    peaks = {"": model.memory} if model else {}
    slow = model is not None and here[""] < model.memory * thresholds.SMOKE["memory_speed"]
    name, code = "smoke-memory-speed", "smoke-memory-slow"
    return compared(trial, name, "GB/s", here, peaks, slow, code)


def bus(trial: GpuTrial, found: dict[str, Any], model: GpuPeaks | None) -> CheckResult:
    """Compare the GB/s over the bus with the model's; add the link that NVML showed under load."""
    here = {"to it": found["to"] / GB, "from it": found["from"] / GB}
    peaks = {"": model.bus()} if model else {}
    slow = model is not None and min(here.values()) < model.bus() * thresholds.SMOKE["bus"]
    result = compared(trial, "smoke-bus", "GB/s", here, peaks, slow, "smoke-bus")
    seen = [(s["pcie_width"], s["pcie_gen"]) for s in trial.samples if s.get("pcie_gen")]
    link = "; the link: x{} generation {}".format(*max(seen)) if seen else ""
    return result._replace(read=result.read + link, says=result.says and result.says + link)


JUDGES = (
    *((memory, "memory"), (product, "product"), (stable, "stable")),
    *((speed, "speed"), (memory_speed, "bandwidth"), (bus, "bandwidth")),
)
"""Each judge, and the part whose value it judges."""


def throttling(trial: GpuTrial) -> list[CheckResult]:
    """Check that the hardware didn't slow the card down under load."""
    seen = [sample for sample in trial.samples if sample.get("throttle") is not None]
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
        return [CheckResult(name, trial.index, WARN, read, "", says, code, HOST, SLOWER)]
    return [CheckResult(name, trial.index, PASS, f"none; {under}")]


@dataclass
class GroupTrial:
    """The test of all GPUs together: what `together.py` reported of each, by part."""

    gpus: list[int]
    """The index of each GPU, by rank."""
    parts: list[dict[str, Any]]
    pairs: list[dict[str, Any]] = field(default_factory=list)
    """If that failed: the copies from each GPU to the later ones."""
    without: GroupTrial | None = None
    """If that failed: the same without peer-to-peer access."""

    def tried(self) -> bool:
        """Return whether the environment's library can do this at all."""
        return all(parts.get("library") != "" for parts in self.parts)

    def failure(self) -> str:
        """Return what went wrong first, and where; "" if every sum was right."""
        suspects = {gpu for pair in self.bad_pairs() for gpu in pair}
        ranks = list(zip(self.gpus, self.parts))  # noqa: B905 - a box's Python may be old
        # The others fail because of them, or because they were ended.
        groups = (
            [r for r in ranks if r[0] in suspects],
            [r for r in ranks if r[0] not in suspects],
        )
        for part in ("library", "start", "join", "all-reduce", "speed"):
            for group in groups:
                if found := failure_of(part, group):
                    return found
        return ""

    def bad_pairs(self) -> list[tuple[int, int]]:
        """Return the pairs of GPUs between which a copy failed, came wrong or hung."""
        return [
            (self.gpus[rank], self.gpus[int(part.split()[1])])
            for rank, parts in enumerate(self.pairs)
            for part, value in parts.items()
            if part.startswith("copy") and (value is None or "error" in value or value["wrong"])
        ]

    def speed(self) -> float:
        """Return the bus bandwidth of the all-reduce in bytes a second: the slowest GPU's."""
        return min(float(parts["speed"]["bus"]) for parts in self.parts)


def failure_of(part: str, ranks: list[tuple[int, dict[str, Any]]]) -> str:
    """Return what went wrong in a part with some of the GPUs; "" if nothing did."""
    late = []
    for gpu, parts in ranks:
        value = parts.get(part)
        if isinstance(value, dict) and "error" in value:
            return f"{part} failed on GPU {gpu}: {value['error']}"
        if isinstance(value, dict) and value.get("wrong"):
            return f"GPU {gpu} got {value['wrong']} wrong sums of {value['words']}"
        if value is None and parts["ended"] == "crash":
            return f"{part} crashed on GPU {gpu}"
        late += [gpu] if value is None else []
    return f"{part} gave no answer in time on GPU {', '.join(map(str, late))}" if late else ""


def judge_group(group: GroupTrial, name: str | None, links: bool) -> list[CheckResult]:
    """Return the results of all GPUs together; `links`: each has an NVLink that is up."""
    check, count = "smoke-together", len(group.gpus)
    if not group.tried():
        read = "not tried: the environment's library has no NCCL"
        return [CheckResult(check, None, NA, read)]
    failure = group.failure()
    if not failure:
        reached = sum(len(parts["start"]) for parts in group.parts)
        peers = f"{reached} of {count * (count - 1)}" if reached else "no"
        read = f"sums over {count} GPUs right; {peers} direct ways from card to card"
        return [CheckResult(check, None, PASS, read), together_speed(group, name, links)]
    if failure.startswith("library"):
        found = (WARN, "not tried", "", failure, "smoke-undone", LOG, LOG)
        return [CheckResult(check, None, *found)]
    if "out of memory" in failure.lower():
        return [CheckResult(check, None, NA, "too little memory was free")]
    pairs = ", ".join(f"{one} and {other}" for one, other in group.bad_pairs())
    where = f" The pairs that can't: {pairs}." if pairs else ""
    if group.without and not group.without.failure():
        says = f"the GPUs can't talk directly: {failure}. They can through the machine's memory."
        found = (WARN, failure, "", says + where, "smoke-p2p", NO_P2P, NO_P2P)
        return [CheckResult(check, None, *found)]
    says = f"the GPUs can't talk to each other: {failure}.{where}"
    found = (RETURN, failure, "", says, "smoke-together", NO_TALK, ADVICE_WARN)
    return [CheckResult(check, None, *found)]


def together_speed(group: GroupTrial, name: str | None, links: bool) -> CheckResult:
    """Compare the GB/s of an all-reduce with what joins the cards."""
    model, here = model_of(name), {"": group.speed() / GB}
    linked = links and model is not None and model.nvlink is not None
    peaks = {} if model is None else {"": model.nvlink if linked and model.nvlink else model.bus()}
    least = thresholds.SMOKE["nvlink" if linked else "pcie"]
    slow = bool(peaks) and here[""] < peaks[""] * least
    over = "NVLink" if linked else "the bus"
    trial = GpuTrial(-1, name, "", {})
    check, code = "smoke-together-speed", "smoke-together-slow"
    result = compared(trial, check, f"GB/s over {over}", here, peaks, slow, code)
    return result._replace(gpu=None)


def compared(  # noqa: PLR0913, PLR0917 - what makes one result
    trial: GpuTrial,
    check: str,
    unit: str,
    here: dict[str, float],
    peaks: dict[str, float],
    slow: bool,
    code: str,
) -> CheckResult:
    """Judge speeds by the table's."""
    read, expected = figures(here, unit), figures(peaks, unit)
    if not peaks:
        return CheckResult(check, trial.index, NA, f"{read}; this model is not in the table")
    if slow:
        says = f"far under its model: {read}, of {expected}"
        return CheckResult(check, trial.index, WARN, read, expected, says, code, SLOWER, SLOWER)
    return CheckResult(check, trial.index, PASS, read, expected)


def figures(values: dict[str, float], unit: str) -> str:
    """Format numbers with three significant digits, each after its kind."""
    shown = (f"{kind} {v:.0f}" if v >= 100 else f"{kind} {v:.3g}" for kind, v in values.items())
    return ", ".join(text.strip() for text in shown) + f" {unit}"
