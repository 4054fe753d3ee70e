"""The table of checks, the weightiest first in each of its parts.

`WHOLE_CHECKS` concern all GPUs together, `GPU_CHECKS` each of them, `MACHINE_CHECKS`
and `NETWORK_CHECKS` what stands around them: `BOX_CHECKS`. A profile weighs each by its name.
"""

from __future__ import annotations

from .gpu_checks import GPU_CHECKS, WHOLE_CHECKS
from .machine_checks import MACHINE_CHECKS, NETWORK_CHECKS

__all__ = ["BOX_CHECKS", "GPU_CHECKS", "NAMES", "OF_GPUS", "SMOKE", "WHOLE_CHECKS"]

# Whether there are GPUs that can be read, and whether each answers: judged before any check.
ALWAYS = ("gpu", "answers")
# What `smoke.py` tries, judged by `grade.py`; the first is the trying itself.
SMOKE = (
    *("smoke", "smoke-memory", "smoke-product", "smoke-stable"),
    *("smoke-speed", "smoke-memory-speed", "smoke-bus", "smoke-throttling"),
)
OF_GPUS = (*WHOLE_CHECKS, *GPU_CHECKS)
BOX_CHECKS = (*MACHINE_CHECKS, *NETWORK_CHECKS)
NAMES = (*ALWAYS, *(check.name for check in (*OF_GPUS, *BOX_CHECKS)), *SMOKE)
