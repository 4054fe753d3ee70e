"""The table of checks, the weightiest first in each of its parts.

`WHOLE_CHECKS` concern all GPUs together, `GPU_CHECKS` each of them, `BOX_CHECKS` the machine and
network around them. A profile weighs each by its name. The compact script lacks the lines that
end in `# full`, and so has only the weightiest checks.
"""

from __future__ import annotations

from .check import Check
from .gpu_checks import SOUND_CHECKS, WHOLE_CHECKS
from .gpu_performance import PERFORMANCE_CHECKS  # full
from .machine_checks import MACHINE_CHECKS  # full
from .network_checks import NETWORK_CHECKS  # full

__all__ = ["BOX_CHECKS", "GPU_CHECKS", "NAMES", "OF_GPUS", "SMOKE", "WHOLE_CHECKS"]

GPU_CHECKS: tuple[Check, ...] = SOUND_CHECKS
BOX_CHECKS: tuple[Check, ...] = ()
GPU_CHECKS += PERFORMANCE_CHECKS  # full
BOX_CHECKS += (*MACHINE_CHECKS, *NETWORK_CHECKS)  # full
OF_GPUS = (*WHOLE_CHECKS, *GPU_CHECKS)
# Whether there are GPUs that can be read, and whether each answers: judged before any check.
ALWAYS = ("gpu", "answers")
# What `smoke.py` tests, judged by `smoke/judge.py`; the first is the test itself.
SMOKE = (
    *("smoke", "smoke-memory", "smoke-product", "smoke-stable"),
    *("smoke-speed", "smoke-memory-speed", "smoke-bus", "smoke-throttling"),
)
NAMES = (*ALWAYS, *(check.name for check in (*OF_GPUS, *BOX_CHECKS)), *SMOKE)
