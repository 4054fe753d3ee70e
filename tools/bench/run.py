"""`run` after one file changed: from the save to the first line of the new run, near and far, and
where the last run's results, 100 MB, must be kept first.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections import defaultdict
from pathlib import Path

from tools.bench import clock
from tools.bench.clock import BenchError, TimedCall
from tools.bench.competitors import ssh_true
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

_LINE = "run after one changed file: from the save to its first line"
_TRUE, _RUN = "ssh host true", "boxstrap run"
_LIMIT_S = {False: 1.0, True: 1.8}
_KEPT = "the same, and 100 MB of results that are not at home are kept first"
_KEPT_BAR = Bar(0.6)
_MAKES = "import pathlib; pathlib.Path('out').mkdir(exist_ok=True)\n"
_MAKES += "pathlib.Path('out/ckpt').write_bytes(bytes(range(250)) * 400_000)\n"
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
    rows = [
        BenchRow(
            _LINE,
            f"{name}{', 100 ms away' if is_far else ''}",
            seconds,
            bar=Bar(_LIMIT_S[is_far]) if name == _RUN else None,
        )
        for (is_far, name), seconds in found.items()
    ]
    return [*rows, BenchRow(_LINE, f"{_RUN}: {_KEPT}", _kept(stage, near, runs), bar=_KEPT_BAR)]


def _kept(stage: Stage, place: StagePlace, runs: int) -> list[float]:
    """Return the seconds of runs that each overwrite what the one before made."""
    profile = _PROFILE.replace("train.py}", "train.py, results: [out/]}")
    files = {"boxstrap.yaml": profile, "train.py": _MAKES}
    repository = stage.repository("keeping", {**files, ".gitignore": "out/\n"})
    for words in (["setup"], ["wait"]):
        clock.run(_call(stage, place, repository, *words), stage.file("run.out"))
    took = []
    for turn in range(runs + 1):
        took.append(_saved(stage, place, repository, f"kept {turn}", _MAKES))
        clock.run(_call(stage, place, repository, "wait"), stage.file("run.out"))
    status = stage.file("status.json")
    clock.run(_call(stage, place, repository, "status", "--json"), status)
    there = len(re.findall(r'"kept_bytes":\s*[1-9]', status.read_text()))
    if there < runs:
        raise BenchError(f"{there} runs' results were kept, of {runs}")
    tell(f"run, with results to keep: {runs}")
    return took[1:]


def _call(stage: Stage, place: StagePlace, repository: Path, *words: str) -> TimedCall:
    there = ("--host", place.host, "--identity", str(place.box.identity))
    return stage.boxstrap(
        *words, *there, state=f"run-{place.ssh_config.stem}", repository=repository
    )


def _saved(stage: Stage, place: StagePlace, repository: Path, text: str, then: str = "") -> float:
    """Return the seconds from the save until the new line can be read."""
    call = _call(stage, place, repository, "run")
    began = time.perf_counter()
    (repository / "train.py").write_text(f"print({text!r}, flush=True)\n{then}")
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
