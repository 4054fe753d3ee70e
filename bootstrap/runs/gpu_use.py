"""Which GPUs a live run uses, and how much of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bootstrap.protocol.run import Run
from bootstrap.protocol.run_details import UsedGpu

_GIB = 2**30


@dataclass(frozen=True)
class GpuUse:
    """One GPU of a run: how busy it is, in percent, and its memory in bytes."""

    index: int
    load: int | None
    memory_used: int | None
    """Used by the run, if the box reports that; else by all processes."""
    memory_total: int | None

    def as_dict(self) -> dict[str, object]:
        """As `--json` prints it."""
        return asdict(self)


def gpu_use(run: Run, runs: Sequence[Run], gpus: Sequence[UsedGpu]) -> tuple[GpuUse, ...]:
    """Return the GPUs that a live run's processes use. If those can't be seen (in a container the
    driver sees other pids): the GPUs it was given, else all if no other run is live, else none."""
    if run.state != "running":
        return ()
    path = f"{run.repo_key}/{run.name}"
    own = [gpu for gpu in gpus if path in gpu.held]
    if own:
        return tuple(_use(gpu, gpu.held[path] or gpu.memory_used) for gpu in own)
    given = run.gpus.split(",") if run.gpus else []
    alone = sum(one.state == "running" for one in runs) == 1
    return tuple(
        _use(gpu, gpu.memory_used)
        for gpu in gpus
        if str(gpu.index) in given or gpu.uuid in given or (alone and not given)
    )


def gpus_in_words(run: Run, uses: Sequence[GpuUse]) -> str:
    """Describe the use of its GPUs; if it is unknown, or the run waits, the GPUs it was given."""
    goes_on = run.goes_on
    return in_words(uses) or (f"GPU {run.gpus}" if run.gpus and goes_on else "")


def _use(gpu: UsedGpu, memory_used: int | None) -> GpuUse:
    return GpuUse(gpu.index, gpu.load, memory_used, gpu.memory_total)


def in_words(uses: Sequence[GpuUse]) -> str:
    """`GPU 0: 97 %, 41.2 of 80.0 GiB`; for several GPUs the mean load and the total memory."""
    if not uses:
        return ""
    loads = [use.load for use in uses if use.load is not None]
    parts = [f"{sum(loads) / len(loads):.0f} %"] if loads else []
    used = [use.memory_used for use in uses if use.memory_used is not None]
    total = [use.memory_total for use in uses if use.memory_total is not None]
    if used and total:
        parts.append(f"{sum(used) / _GIB:.1f} of {sum(total) / _GIB:.1f} GiB")
    numbers = ",".join(str(use.index) for use in uses)
    return f"{'GPU' if len(uses) == 1 else 'GPUs'} {numbers}: {', '.join(parts) or 'does not say'}"
