"""Say which steps of a setup would run, and why; nothing is written. `onbox setup.plan SCRIPT WORD
...`: the words are those of `WantedSetup`.

A line `plan TAB STEP TAB WHY` each; `edited`, `reused`, and if a live run has the tree, `differs`
with what of it differs.
"""

from __future__ import annotations

import sys

from ..git import BoxTree
from ..run_folder import RunFolder, lines_of
from ..steps.step import SKIPPED, step_named
from .wanted import WantedSetup

_DECIDED_BY = {
    **{"python": ("repo", "gpu"), "smoke": ("python", "gpu"), "data": ("repo",)},
    **dict.fromkeys(("prepare", "train"), ("repo", "data")),
}
"""By step, the ones that make what it depends on: until these are right, nobody knows whether it
would run, but where it was never done, or is asked for. Of the others that it needs only success
counts."""


def tell(wanted: WantedSetup) -> None:
    key, main = wanted.repository()
    tree = BoxTree(wanted.home, key, main)
    setup = wanted.facts(tree, main)
    later: set[str] = set()
    found: dict[str, str] = {}
    for name in wanted.steps:
        step = step_named(name, setup)
        decides = later.intersection(_DECIDED_BY.get(name, ()))
        is_open = decides and lines_of(step.stamp) and not step.is_asked()
        why = step.why() if not is_open else "alive" if step.is_left_alone() else "after"
        if why not in SKIPPED:
            later.add(name)
        found[name] = why
    rows = [f"plan\t{name}\t{why}\n" for name, why in found.items()]
    if reused := RunFolder(tree.notes).first("python.reused"):
        rows.append(f"reused\t{reused}\n")
    if setup.alive_run:
        from ..steps.train import TrainStep  # late: most boxes have none

        differences = TrainStep(setup).differences(RunFolder(setup.alive_run))
        rows.append(f"differs\t{' '.join(['', *differences])}\n")
    sys.stdout.write("".join(rows))
    sys.stdout.flush()


def main() -> None:
    tell(WantedSetup(sys.argv[1], sys.argv[2:]))
