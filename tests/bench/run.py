"""`run` after one file changed: from the save to the first line of the new run, near and far."""

from __future__ import annotations

import subprocess
import time
from collections import defaultdict
from pathlib import Path

from tests.bench import clock
from tests.bench.clock import BenchError, TimedCall
from tests.bench.competitors import ssh_true
from tests.bench.stage import Stage, StagePlace
from tests.bench.table import Bar, BenchRow
from tests.bench.tell import tell

_LINE = "run after one changed file: from the save to its first line"
_TRUE, _RUN = "ssh host true", "boxstrap run"
_LIMIT_S = {False: 1.0, True: 1.8}
_PROFILE = "version: 1\nextends: vast\ngpu: {require: false}\ntrain: {command: python train.py}\n"


def measure(stage: Stage, runs: int) -> list[BenchRow]:
    """Measure on one box that is set up, with its environment in place."""
    near = stage.box("vast")
    repository = stage.repository("trained", {"boxstrap.yaml": _PROFILE, "train.py": "1\n"})
    found: dict[tuple[bool, str], list[float]] = defaultdict(list)
    for is_far, place in {False: near, True: stage.far(near)}.items():
        clock.run(_call(stage, place, repository, "setup"), stage.file("run.out"))
        for turn in range(runs + 1):
            took = {
                _TRUE: clock.run(ssh_true(stage, place), stage.file("true.out")),
                _RUN: _saved(stage, place, repository, f"turn {turn} of {is_far}"),
            }
            if turn:  # the first turn is the first contact at this address
                for name, seconds in took.items():
                    found[is_far, name].append(seconds)
        tell(f"run, {'100 ms away' if is_far else 'near'}: {runs} of each")
    return [
        BenchRow(
            _LINE,
            f"{name}{', 100 ms away' if is_far else ''}",
            seconds,
            bar=Bar(_LIMIT_S[is_far]) if name == _RUN else None,
        )
        for (is_far, name), seconds in found.items()
    ]


def _call(stage: Stage, place: StagePlace, repository: Path, *words: str) -> TimedCall:
    there = ("--host", place.host, "--identity", str(place.box.identity))
    return stage.boxstrap(
        *words, *there, state=f"run-{place.ssh_config.stem}", repository=repository
    )


def _saved(stage: Stage, place: StagePlace, repository: Path, text: str) -> float:
    """Return the seconds from the save until the new line can be read."""
    call = _call(stage, place, repository, "run")
    began = time.perf_counter()
    (repository / "train.py").write_text(f"print({text!r}, flush=True)\n")
    with stage.file("run.err").open("wb") as err:
        process = subprocess.Popen(
            call.argv, env=call.env, cwd=call.cwd, stdout=subprocess.PIPE, stderr=err
        )
        assert process.stdout is not None
        seconds = next(
            (time.perf_counter() - began for line in process.stdout if text in line.decode()), None
        )
        process.communicate()
    if process.returncode or seconds is None:
        raise BenchError(
            f"run: exit {process.returncode}\n{stage.file('run.err').read_text()[-2000:]}"
        )
    return seconds
