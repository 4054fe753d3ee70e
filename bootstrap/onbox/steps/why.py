"""Say of steps why they would run, or why not: a line `STEP TAB WHY TAB ALONE` each, where ALONE is
`yes` for one that a live run keeps as it is; and `alive TAB RUN` if one has the tree. Looks only.
`onbox steps.why STEP ...`
"""

from __future__ import annotations

import os
import sys

from .step import read_setup, step_named


def main() -> None:
    setup = read_setup()
    said = [f"alive\t{setup.alive_run}\n"] if setup.alive_run else []
    for name in sys.argv[1:]:
        step = step_named(name, setup)
        said += [f"{name}\t{step.why()}\t{'yes' if step.is_left_alone() else ''}\n"]
    os.write(1, os.fsencode("".join(said)))
