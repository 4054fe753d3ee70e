"""`status` of a box with twenty runs, compared with `ssh host true`: near, and 100 ms away.

This is the most expensive such box: a run is alive on a GPU (NVML's stand-in), so its use is
queried, and the logs of ten failed runs are read.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from tests.nvml import scenarios
from tests.nvml.stub import build_library
from tools.bench import clock
from tools.bench.competitors import ssh_true
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

GROUPS = {False: "status of 20 runs", True: "status of 20 runs, 100 ms away"}
RUNS = 20
_TRUE, _STATUS = "ssh host true", "boxstrap status"
_FACTOR, _MORE_S = 1.5, 0.5
_TRAIN = "import time\nprint('step 1', flush=True)\ntime.sleep(3600)\n"
_PROFILE = "version: 1\nextends: vast\ngpu: {smoke: none}\ntrain: {command: python train.py}\n"
# A traceback of usual length, after as much log as `status` reads.
_MORE_RUNS = f"""
cd /workspace/.boxstrap/runs/*/
for n in $(seq 2 {RUNS}); do
  cp -r train-1 train-$n
  echo $((n % 2)) >train-$n/exit
  {{
    seq 2000
    echo 'Traceback (most recent call last):'
    for frame in $(seq 20); do printf '  File "/w/x.py", line %s, in f\\n    f()\\n' $frame; done
    echo "ValueError: $n"
  }} >train-$n/log
done
"""


def measure(stage: Stage, runs: int) -> list[BenchRow]:
    """Measure both in turn, so that each gets the same load of this machine."""
    near = stage.box("vast")
    near.box.show_card(build_library(stage.folder), scenarios.A100)
    repository = stage.repository("many", {"train.py": _TRAIN, "boxstrap.yaml": _PROFILE})
    tell("a box with a run that lives, and others that are over")
    for place in (near, stage.far(near)):  # first contact at each address
        words = ("--host", place.host, "--identity", str(place.box.identity))
        setup = stage.boxstrap("setup", *words, state="status", repository=repository)
        clock.run(setup, stage.file("status.out"))
    near.box.run(_MORE_RUNS)
    found: dict[tuple[bool, str], list[float]] = defaultdict(list)
    for is_far in GROUPS:
        place = stage.far(near) if is_far else near
        words = ("--host", place.host, "--identity", str(place.box.identity))
        calls = {
            _TRUE: ssh_true(stage, place),
            _STATUS: stage.boxstrap("status", *words, state="status", repository=repository),
        }
        for _ in range(runs):
            for name, call in calls.items():
                found[is_far, name].append(clock.run(call, stage.file("status.out")))
        _check(stage, place)
    return _rows(found)


def _check(stage: Stage, place: StagePlace) -> None:
    """Check that it showed what it is timed for. Raises BenchError."""
    told = stage.file("status.out").read_text()
    for words in ("GPU 0: ", "| ValueError: 19", "ValueError: 17", "running", "older ones"):
        if words not in told:
            raise clock.BenchError(f"{place.host}: status does not say {words!r}:\n{told}")


def _rows(found: dict[tuple[bool, str], list[float]]) -> list[BenchRow]:
    rows = []
    for is_far, group in GROUPS.items():
        limit = _FACTOR * median(found[is_far, _TRUE]) + _MORE_S
        bar = Bar(limit, f"{_FACTOR} of {_TRUE} + {_MORE_S} s")
        rows += [
            BenchRow(group, _TRUE, found[is_far, _TRUE]),
            BenchRow(group, _STATUS, found[is_far, _STATUS], bar=bar),
        ]
    return rows
