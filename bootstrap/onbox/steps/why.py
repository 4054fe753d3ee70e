"""Say of steps why they would run, or why not: a line `STEP TAB WHY TAB ALONE` each, where ALONE is
`yes` for one that a live run keeps as it is; if one has the tree, `alive TAB RUN`, and `differs`
with what of it differs from this setup. Looks only. `onbox steps.why STEP ...`
"""

from __future__ import annotations

import os
import sys

from ..run_folder import RunFolder
from .step import read_setup, step_named


def main() -> None:
    setup = read_setup()
    said: list[str] = []
    if setup.alive_run:
        from .train import TrainStep  # late: most boxes have none

        differences = TrainStep(setup).differences(RunFolder(setup.alive_run))
        said = [f"alive\t{setup.alive_run}\n", f"differs\t{' '.join(['', *differences])}\n"]
    for name in sys.argv[1:]:
        step = step_named(name, setup)
        said += [f"{name}\t{step.why()}\t{'yes' if step.is_left_alone() else ''}\n"]
    os.write(1, os.fsencode("".join(said)))
