"""Copies of real repositories (`tests/repository_files.py`): `init`, then a setup without an edit.

Each copy's training imports what the real one does and takes a step. What this machine's package
index or missing GPU prevents is noted in the row.
"""

from __future__ import annotations

import json
import re
from functools import partial

import yaml

from tests.repository_files import read_repositories, write_files
from tools.bench import clock
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import BenchRow

GROUP = "init: from a repository without a profile to its training's first step"
_WITHOUT_GPU = ("--set", "gpu.require=false", "--json")
_REASON = re.compile(r"(?:Because|No module|error:|Error:)[^\n]{0,90}")


def measure(stage: Stage) -> list[BenchRow]:
    """Measure all on one box, since rented boxes keep what they have fetched."""
    place = stage.box("vast")
    rows = []
    for name, parts in read_repositories("real").items():
        writes = yaml.safe_load(parts["= profile"])
        if "train" not in writes or "uv.lock" in parts:
            continue  # a library, or a lock that is shortened here and can't be installed
        root = stage.commit(name.rpartition("/")[2], partial(write_files, parts))
        log = stage.file("init.log")
        clock.run(stage.boxstrap("init", state="init", repository=root), log)
        words = ["--host", place.host, "--identity", str(place.box.identity), *_WITHOUT_GPU]
        command = str(writes["train"]["command"])
        script = next(path for path in parts if path in command and "__main__" in parts[path])
        # Without a GPU, a launcher has nothing to launch.
        words += ["--set", f"train.command=python {script}"]
        try:
            took = clock.run(stage.boxstrap("setup", *words, state="init", repository=root), log)
            note = _outcome(place, root.name)
        except clock.BenchError as error:
            took, note = 0.0, _reason(_log(place, root.name) or str(error))
        rows.append(BenchRow(GROUP, name.partition(": ")[2], [took], note=note))
    return rows


def _outcome(place: StagePlace, name: str) -> str:
    """Return `step 1`, or the line of the log that says why the training didn't take it."""
    over = f'grep -qs "step 1" {_run(name)}/log || ls {_run(name)}/exit 2>/dev/null'
    place.box.run(f"timeout 60 sh -c 'until {over}; do sleep 1; done'", check=False)
    said = _log(place, name)
    return "step 1" if "step 1" in said else _reason(said)


def _log(place: StagePlace, name: str) -> str:
    """Return the log of the repository's training; empty if there is none."""
    return place.box.run(f"cat {_run(name)}/log 2>/dev/null", check=False)


def _run(name: str) -> str:
    return f"/workspace/.boxstrap/runs/{name}-*/train-1"


def _reason(said: str) -> str:
    """Return the line that says why, shortened."""
    found = _REASON.findall(said)
    return found[-1] if found else json.dumps(said[-90:])
