"""From typing a command to its first output."""

from __future__ import annotations

from tools.bench import clock
from tools.bench.competitors import BOXSTRAP
from tools.bench.fresh import once
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow

GROUP = "start: until the first byte of output"
_WORDS = (("--version",), ("profiles",), ("setup", "--help"), ("boxes",))
_BAR = Bar(0.4)


def measure(stage: Stage, runs: int, places: dict[str, StagePlace]) -> list[BenchRow]:
    """Measure commands without a box, and a setup of a box that is set up already."""
    if BOXSTRAP.key not in places:
        places[BOXSTRAP.key] = once(stage, BOXSTRAP).place
    (setup,) = BOXSTRAP.calls(stage, places[BOXSTRAP.key])
    calls = {
        **{" ".join(words): stage.boxstrap(*words, state="start") for words in _WORDS},
        "setup": setup,
    }
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(runs + 1):
        for name, call in calls.items():
            took = clock.first_output(call)
            if turn:
                found[name].append(took)
    return [BenchRow(GROUP, f"boxstrap {name}", values, bar=_BAR) for name, values in found.items()]
