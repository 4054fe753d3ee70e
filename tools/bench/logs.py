"""A gigabyte of training log: `logs -f`, near and 100 ms away, and parts of it."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tools.bench import clock
from tools.bench.clock import BenchError, TimedCall
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

GROUP = "logs -f of 1 GB"
SIZE = 1_000_000_000
_PIECE = 1 << 20
_WRITE_LIMIT_S = 120
_MOST_MB = 100
_SPEEDS = {False: 150, True: 50}


@dataclass(frozen=True)
class Followed:
    """One reading of the whole log."""

    seconds: float
    """From the command to the last byte."""
    memory_mb: float
    """Peak memory of the program's process."""
    count: int
    """Bytes received."""


def measure(stage: Stage, runs: int) -> list[BenchRow]:
    """Start the run, then read its log, first near, then far."""
    near = stage.box("vast")
    repository = stage.repository_for_log(SIZE)
    words = ("--host", near.host, "--identity", str(near.box.identity))
    tell("a training that writes 1 GB")
    clock.run(
        stage.boxstrap("setup", *words, state="logs", repository=repository), stage.file("logs.out")
    )
    _await_end(near)
    places = {False: near, True: stage.far(near)}
    found: dict[bool, list[Followed]] = {False: [], True: []}
    for is_far, place in places.items():
        call = _call(stage, place)
        if is_far:  # first contact at this address; a copy of the setup's state would do too
            clock.run(
                stage.boxstrap(
                    "setup",
                    *("--host", place.host, "--identity", str(place.box.identity)),
                    state="logs",
                    repository=repository,
                ),
                stage.file("logs.out"),
            )
        found[is_far] = [_whole(follow(call)) for _ in range(runs)]
    return [*_rows(found), *(_part(stage, near, asked, runs) for asked in _PARTS)]


_PARTS = (
    ("--tail", "20"),
    ("--since", "1h", "--tail", "20"),
    ("--until", "1h"),
    ("--grep", "loss 2[.]60|NaN", "--tail", "20"),
    ("--grep", "step 1234567 |NaN"),
)
_PART_S = 0.4


def _part(stage: Stage, place: StagePlace, asked: tuple[str, ...], runs: int) -> BenchRow:
    """Time a part of the log. The last one reads all of it: grep's own speed is what it takes."""
    words = (*asked, "--host", place.host, "--identity", str(place.box.identity))
    call = stage.boxstrap("logs", *words, state="logs", repository=stage.folder / "longlog")
    took = [clock.run(call, stage.file("logs.out")) for _ in range(max(runs, 3))]
    return BenchRow(GROUP, f"logs {' '.join(asked)}", took, "s", Bar(_PART_S))


def _call(stage: Stage, place: StagePlace) -> TimedCall:
    words = ("--host", place.host, "--identity", str(place.box.identity))
    return stage.boxstrap("logs", "-f", *words, state="logs", repository=stage.folder / "longlog")


def _await_end(place: StagePlace) -> None:
    end = time.monotonic() + _WRITE_LIMIT_S
    while time.monotonic() < end:
        if place.box.run("cat /workspace/.boxstrap/runs/*/*/exit 2>/dev/null; true").strip() == "0":
            return
        time.sleep(0.2)
    raise BenchError("the training that writes the log did not end well")


def _whole(followed: Followed) -> Followed:
    if followed.count != SIZE:
        raise BenchError(f"logs -f: {followed.count} of {SIZE} bytes came")
    return followed


def follow(call: TimedCall) -> Followed:
    """Read all its output through a pipe; the bytes are counted and discarded."""
    began = time.perf_counter()
    process = subprocess.Popen(
        call.argv,
        env=call.env,
        cwd=call.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    said: list[bytes] = []
    errors = threading.Thread(target=lambda: said.append(process.stderr.read()))  # type: ignore[union-attr]
    errors.start()
    count, last = 0, began
    with Path(os.devnull).open("wb") as nowhere:
        while moved := os.splice(process.stdout.fileno(), nowhere.fileno(), _PIECE):
            count += moved
            last = time.perf_counter()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    errors.join()
    process.stdout.close()
    process.stderr.close()
    if process.returncode:
        text = b"".join(said).decode(errors="replace")[-2000:]
        raise BenchError(f"logs -f: exit {process.returncode}\n{text}")
    return Followed(last - began, usage.ru_maxrss * 1024 / 1e6, count)


def _rows(found: dict[bool, list[Followed]]) -> list[BenchRow]:
    rows = []
    for is_far, readings in found.items():
        where = "100 ms away" if is_far else "near"
        rows.append(
            BenchRow(
                GROUP,
                f"boxstrap, {where}",
                [SIZE / 1e6 / reading.seconds for reading in readings],
                "MB/s",
                Bar(_SPEEDS[is_far], at_least=True),
                digits=0,
            )
        )
        memory = [reading.memory_mb for reading in readings]
        rows.append(
            BenchRow(GROUP, f"  its memory, {where}", [max(memory)], "MB", Bar(_MOST_MB), digits=0)
        )
    return rows
