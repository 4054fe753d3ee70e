"""What runs at home took: peak memory, time, and the speed that their GPUs were measured at.

From these an estimate says what the same run would take on another GPU, only if the smoke test
measured both models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bootstrap.errors import BoxstrapError
from bootstrap.estimate.cost import Price

if TYPE_CHECKING:
    from bootstrap.boxes.at_home import RunAtHome
    from bootstrap.protocol.run_history import RunHistory

_NEWEST = 20
"""Runs that are looked at."""
_FIGURE = re.compile(r"(?:([a-z]+[0-9]*) )?([0-9]+(?:\.[0-9]+)?)")
_KINDS = ("bf16", "fp16", "half", "tf32", "fp32")
"""Kinds of numbers by which a training's speed is compared, the likeliest first."""


@dataclass(frozen=True)
class MeasuredRun:
    """One run that ended well, with what was measured of it."""

    name: str
    gpu: str
    gpus: int
    seconds: float
    peak_gb: float | None
    """The most memory that one of its GPUs had in use, by NVML."""
    speeds: dict[str, float] = field(default_factory=dict)
    """TFLOP/s that the smoke test reached on its GPU, by kind of number; empty if not tested."""

    def line(self) -> str:
        """Return what it took, in words."""
        from bootstrap.text.sizes import duration

        peak = f", {self.peak_gb:.1f} GB at the peak" if self.peak_gb else ""
        return f"{self.name} took {duration(self.seconds)} on {self.gpus} x {self.gpu}{peak}"


@dataclass(frozen=True)
class SameRun:
    """What a run would take on another GPU, or why that can't be said."""

    gpu: str
    seconds: float | None = None
    why_not: str = ""


def measured(kept: Iterable[RunAtHome]) -> list[MeasuredRun]:
    """Return the newest runs that ended with 0 and whose GPUs are known."""
    found = []
    for one in [run for run in kept if run.run.state == "finished" and run.run.rc == 0][:_NEWEST]:
        history, seconds = one.history(), one.run.seconds(one.box_time)
        if history is not None and seconds and (made := _of(one.run.name, history, seconds)):
            found.append(made)
    return found


def _of(name: str, history: RunHistory, seconds: float) -> MeasuredRun | None:
    from bootstrap.protocol.verdict import read_verdict

    head, rows = history.read_samples()
    used = [gpu[1] for row in rows for gpu in row[3] if gpu and gpu[1]]
    names = [gpu.name for gpu in head.gpus if gpu.name]
    speeds = dict[str, float]()
    if history.verdict:
        try:
            verdict = read_verdict(history.verdict.encode())
        except BoxstrapError:
            verdict = None
        if verdict is not None:
            names = names or [gpu.name for gpu in verdict.gpus if gpu.name]
            speeds = speeds_in([row.read for row in verdict.checks if row.check == "smoke-speed"])
    if not names:
        return None
    peak = max(used) / 1e9 if used else None
    return MeasuredRun(name, names[0], len(names), seconds, peak, speeds)


def speeds_in(texts: Sequence[str]) -> dict[str, float]:
    """Read `fp32 49.1, bf16 712 TFLOP/s`; of several GPUs the slowest counts."""
    found = dict[str, float]()
    for text in texts:
        if "TFLOP/s" not in text:
            continue
        for kind, figure in _FIGURE.findall(text.partition("TFLOP/s")[0]):
            if kind in _KINDS:
                found[kind] = min(float(figure), found.get(kind, float(figure)))
    return found


def same_run(run: MeasuredRun, price: Price, others: Sequence[MeasuredRun]) -> SameRun:
    """Return what the run would take on the price's GPU, by the measured speeds of both.

    It says nothing where the memory would not do, or one of the two was never measured here.
    """
    if run.peak_gb and run.peak_gb > price.memory_gb:
        return SameRun(price.gpu, why_not=f"it used {run.peak_gb:.1f} GB")
    if price.fits(_short(run.gpu)):
        return SameRun(price.gpu, run.seconds)
    known = next((one for one in others if one.speeds and price.fits(_short(one.gpu))), None)
    if not run.speeds or known is None:
        missing = run.gpu if not run.speeds else price.gpu
        return SameRun(price.gpu, why_not=f"the smoke test never measured a {missing} here")
    kind = next((kind for kind in _KINDS if kind in run.speeds and kind in known.speeds), "")
    if not kind:
        return SameRun(price.gpu, why_not="the two were measured with different numbers")
    return SameRun(price.gpu, run.seconds * run.speeds[kind] / known.speeds[kind])


def _short(name: str) -> str:
    """Return NVML's name as a price list would write it: NVIDIA A100-SXM4-80GB, A100 SXM 80GB."""
    plain = re.sub(r"\b(nvidia|geforce|tesla|hbm3e?|hbm2e?)\b", " ", name.lower())
    return re.sub(r"\bsxm\d\b", "sxm", plain.replace("-", " "))
