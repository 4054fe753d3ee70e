"""The table of checks, the weightiest first in each of its parts.

`WHOLE_CHECKS` concern all GPUs together, `GPU_CHECKS` each of them, `BOX_CHECKS` what stands
around them. A profile weighs each by its name. The rows come from the modules of `SUBJECTS` that
lie beside this one: a compact script carries the first alone, and so judges by its rows alone.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from .verify_check import Check

__all__ = ["BOX_CHECKS", "GPU_CHECKS", "NAMES", "OF_GPUS", "SMOKE", "WHOLE_CHECKS"]

SUBJECTS = ("gpu_checks", "gpu_performance", "machine_checks", "network_checks")
HERE = [
    import_module(f".{name}", __package__)
    for name in SUBJECTS
    if find_spec(f".{name}", __package__)
]


def rows(table: str) -> tuple[Check, ...]:
    """The rows that the subjects have in a table of this name."""
    return tuple(check for subject in HERE for check in getattr(subject, table, ()))


# Whether there are GPUs that can be read, and whether each answers: judged before any check.
ALWAYS = ("gpu", "answers")
# What `smoke.py` tries, judged by `smoke_judge.py`; the first is the trying itself.
SMOKE = (
    *("smoke", "smoke-memory", "smoke-product", "smoke-stable"),
    *("smoke-speed", "smoke-memory-speed", "smoke-bus", "smoke-throttling"),
)
WHOLE_CHECKS, GPU_CHECKS, BOX_CHECKS = map(rows, ("WHOLE_CHECKS", "GPU_CHECKS", "BOX_CHECKS"))
OF_GPUS = (*WHOLE_CHECKS, *GPU_CHECKS)
NAMES = (*ALWAYS, *(check.name for check in (*OF_GPUS, *BOX_CHECKS)), *SMOKE)
