"""Commands within ten minutes of a contact, over the connection that it left, near and 100 ms away.

Beside them `ssh NAME true` over a shared connection of its own; the same first contact with and
without one that is made afterwards; the memory of what stays.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import psutil

from tools.bench import clock
from tools.bench.clock import BenchError, TimedCall
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

_GROUPS = {
    False: "within ten minutes of a contact",
    True: "within ten minutes of a contact, 100 ms away",
}
_FIRST = "first contact: status until it is back"
_TRUE, _AGAIN = "ssh NAME true, shared", "setup, nothing to do"
_STATUS, _RUN, _SYNC = "status", "run, to its first line", "sync of one file"
_NEAR_S = {_AGAIN: 0.2, _STATUS: 0.15, _SYNC: 0.22, _RUN: 0.3}
"""Limits near, on a machine where a login by `ssh NAME true` takes 0.21 s."""
_FAR_MORE_S = {_AGAIN: 0.25, _STATUS: 0.4, _SYNC: 0.4, _RUN: 0.4}
_MOST_MB = 10.0
_PROCESSOR = "processor time, beside python -I -c pass"
_MOST_TIMES = {"version": 3.0, _STATUS: 9.0, _AGAIN: 14.0}
_NOISE_S = 0.05
_PROFILE = "version: 1\nextends: vast\ngpu: {require: false}\ntrain: {command: python train.py}\n"


@dataclass
class _Warm:
    """One box as it is reached, and the repository that is set up on it."""

    stage: Stage
    place: StagePlace
    repository: Path
    turn: int = 0

    def call(self, *words: str, keep_open: str = "10m") -> TimedCall:
        there = ("--host", self.place.host, "--identity", str(self.place.box.identity))
        state = f"{self.repository.name}-{self.place.ssh_config.stem}"
        made = self.stage.boxstrap(*words, *there, state=state, repository=self.repository)
        return replace(made, env={**made.env, "BOXSTRAP_KEEP_OPEN": keep_open})

    def timed(self, *words: str, keep_open: str = "10m") -> float:
        return clock.run(self.call(*words, keep_open=keep_open), self.stage.file("warm.out"))

    def save(self) -> str:
        """Change the one file; return the line that its run will print."""
        self.turn += 1
        line = f"turn {self.turn}"
        (self.repository / "train.py").write_text(f"print({line!r}, flush=True)\n")
        return line

    def synced(self) -> float:
        self.save()
        return self.timed("sync")

    def ran(self) -> float:
        """Return the seconds from the save until the new run's line can be read."""
        line, call = self.save(), self.call("run")
        began = time.perf_counter()
        with self.stage.file("warm.err").open("wb") as err:
            process = subprocess.Popen(
                call.argv, env=call.env, cwd=call.cwd, stdout=subprocess.PIPE, stderr=err
            )
            assert process.stdout is not None
            found = (time.perf_counter() - began for each in process.stdout if line in str(each))
            seconds = next(found, None)
            process.communicate()
        if process.returncode or seconds is None:
            raise BenchError(f"run: {self.stage.file('warm.err').read_text()[-2000:]}")
        return seconds

    def await_open(self) -> None:
        """Wait until a connection to the box is open."""
        limit = time.monotonic() + 30
        out = self.stage.file("boxes.json")
        boxes = replace(self.call("boxes"), argv=[*self.call("boxes").argv[:1], "boxes", "--json"])
        while clock.run(boxes, out) and '"connected": true' not in out.read_text():
            if time.monotonic() > limit:
                raise BenchError("no connection was opened")
            time.sleep(0.05)


def measure(stage: Stage, runs: int) -> list[BenchRow]:
    """Measure all in turn, so that each gets the same load of this machine."""
    near = stage.box("vast")
    edited, still = (
        # Not the same first commit: they would be one repository.
        stage.repository(name, {"boxstrap.yaml": _PROFILE, "train.py": f"print({name!r})\n"})
        for name in ("warm", "still")
    )
    rows: list[BenchRow] = []
    for is_far, place in {False: near, True: stage.far(near)}.items():
        warm = _Warm(stage, place, edited)
        for each in (warm, replace(warm, repository=still)):
            each.timed("setup")
            each.await_open()
        rows += _warm_rows(warm, still, runs, is_far=is_far)
        rows += [] if is_far else _processor_rows(replace(warm, repository=still), runs)
        tell(f"warm, {'100 ms away' if is_far else 'near'}: {runs} of each")
    return [*rows, *_first_contact(stage, near, runs)]


def _memory() -> list[float]:
    """Return the memory in MB of the connections that stay open on this machine."""
    found = psutil.process_iter(["cmdline", "memory_info"])
    masters = (each.info for each in found if "[mux]" in " ".join(each.info["cmdline"] or ()))
    return [info["memory_info"].rss / 1e6 for info in masters]


def _warm_rows(warm: _Warm, still: Path, runs: int, *, is_far: bool) -> list[BenchRow]:
    stage, group = warm.stage, _GROUPS[is_far]
    argv = ["ssh", "-F", str(warm.place.ssh_config)]
    argv += ["-o", f"ControlPath={stage.file(f'true-{is_far}')}"]
    shared = TimedCall([*argv, "box", "true"], stage.environment(), stage.folder)
    kept = ("-o", "ControlMaster=yes", "-o", "ControlPersist=1h")
    clock.run(replace(shared, argv=[*argv, *kept, "box", "true"]), stage.file("true.out"))
    parts: dict[str, Callable[[], float]] = {
        _TRUE: lambda: clock.run(shared, stage.file("true.out")),
        _AGAIN: lambda: replace(warm, repository=still).timed("setup"),
        _STATUS: lambda: warm.timed("status"),
        _SYNC: warm.synced,
        _RUN: warm.ran,
    }
    found: dict[str, list[float]] = defaultdict(list)
    for turn in range(runs + 1):
        for name, part in parts.items():
            took = part()
            if turn:
                found[name].append(took)
    memory = _memory()
    clock.run(replace(shared, argv=[*argv, "-O", "exit", "box"]), stage.file("true.out"))
    bars = {name: Bar(most, "where a login takes 0.21 s") for name, most in _NEAR_S.items()}
    if is_far:
        true = median(found[_TRUE])
        bars = {name: Bar(true + more, f"{_TRUE} + {more} s") for name, more in _FAR_MORE_S.items()}
    rows = [BenchRow(group, name, values, bar=bars.get(name)) for name, values in found.items()]
    rows.append(BenchRow(group, "memory of what stays", memory, "MB", Bar(_MOST_MB), digits=1))
    return rows


def _processor_rows(warm: _Warm, runs: int) -> list[BenchRow]:
    """Measure how many times the processor time of an empty program commands take."""
    stage = warm.stage
    bare = TimedCall([sys.executable, "-I", "-c", "pass"], stage.environment(), stage.folder)
    calls = {
        "version": stage.boxstrap("version", state="start"),
        _STATUS: warm.call("status"),
        _AGAIN: warm.call("setup"),
    }
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(runs):
        once = clock.processor_time(bare, stage.file("bare.out"))
        for name, call in calls.items():
            found[name].append(clock.processor_time(call, stage.file("warm.out")) / once)
    bars = {name: Bar(most, "of an empty program") for name, most in _MOST_TIMES.items()}
    return [
        BenchRow(_PROCESSOR, name, values, "times", bars[name], digits=1)
        for name, values in found.items()
    ]


def _first_contact(stage: Stage, place: StagePlace, runs: int) -> list[BenchRow]:
    """Measure a command that finds no connection: with one that is opened after it, and without."""
    found: dict[str, list[float]] = {"10m": [], "0": []}
    for turn in range(runs + 1):
        for keep_open, seconds in found.items():
            there = ("--host", place.host, "--identity", str(place.box.identity))
            call = stage.boxstrap("status", *there, state=f"first-{keep_open}-{turn}")
            env = {**call.env, "BOXSTRAP_KEEP_OPEN": keep_open}
            took = clock.run(replace(call, env=env), stage.file("first.out"))
            if turn:
                seconds.append(took)
            time.sleep(0.5)  # the connection is being opened meanwhile
    bar = Bar(median(found["0"]) + _NOISE_S, f"without + {_NOISE_S} s")
    return [
        BenchRow(_FIRST, "no connection stays", found["0"]),
        BenchRow(_FIRST, "a connection is opened after it", found["10m"], bar=bar),
    ]
