"""Run the readers, all at the same time, each in a process of its own with a time limit.

They are forked, because starting a new Python takes longer than most readers need.
A reader that hangs is killed and abandoned, never waited for: in the kernel's D
state even SIGKILL has no effect. Its output shows which reading it never finished.

A reader reports `[gpu, key]` before it reads, `[gpu, key, value]` after: one JSON list a line,
unbuffered, so that it survives a hang. `gpu` is null for readings of the box.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

Reading = Any


def emit(*line: Reading) -> None:
    """Write one line to the parent."""
    os.write(1, json.dumps(line).encode() + b"\n")


def emit_reading(gpu: int | None, key: str, read: Callable[[], Reading]) -> Reading:
    """Announce a reading, make it, report it, and return it."""
    emit(gpu, key)
    value = read()
    emit(gpu, key, value)
    return value


Facts = Any  # readings by key, and `gpus`: the readings of each GPU by its index

LATE = {"error": "late"}  # was started, and never finished


class OwnError(Exception):
    """The check itself could not be run."""


class Reader(NamedTuple):
    """A module next to this one, the arguments of its `main`, and its limit in seconds."""

    module: str
    arguments: Sequence[object]
    limit: float


class Report(NamedTuple):
    """What a reader reported: its facts, what it read last, is it complete, was it too late."""

    facts: Facts
    last: str
    whole: bool
    late: bool


def run(readers: Sequence[Reader]) -> list[Report]:
    """Return the report of each reader. Raises OwnError if one failed by its own fault.

    The one with the lowest limit is read first: what the others write
    in the meantime waits in their pipes.
    """
    started = time.monotonic()
    running = [(reader, start(reader)) for reader in readers]
    running.sort(key=lambda each: each[0].limit)
    reports = {reader: finish(reader, *child, started) for reader, child in running}
    return [reports[reader] for reader in readers]


def start(reader: Reader) -> tuple[int, int]:
    """Return its process, and our end of the pipe that it writes to."""
    ours, theirs = os.pipe()
    process = os.fork()
    if process == 0:
        read(reader, theirs)
    os.close(theirs)
    return process, ours


def read(reader: Reader, pipe: int) -> None:
    """Run a reader in its process, without open files that another process may wait for."""
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, file in enumerate((nothing, pipe, nothing)):
            os.dup2(file, number)
        os.closerange(3, 256)
        import_module(f".{reader.module}", __package__).main(*reader.arguments)
    except BaseException as error:  # the parent reports it, whatever it is
        emit(None, "failed", f"{type(error).__name__}: {error}")
    finally:  # even if the parent is gone, never continue with its code
        os._exit(0)


def finish(reader: Reader, process: int, pipe: int, started: float) -> Report:
    """Wait until a reader ends, but not for longer than its limit. Raises OwnError."""
    said, late = b"", True
    while late:
        left = max(0.0, started + reader.limit - time.monotonic())
        if not select.select([pipe], [], [], left)[0]:
            os.kill(process, signal.SIGKILL)
            break
        piece = os.read(pipe, 1 << 16)
        said += piece
        late = bool(piece)
    report = assemble(said.splitlines(keepends=True), late=late)
    if "failed" in report.facts:
        raise OwnError(f"the reader {reader.module} failed: {report.facts['failed']}")
    return report


def assemble(lines: Iterable[bytes], *, late: bool = False) -> Report:
    """Make the report from a reader's lines, as `readers.py` writes them."""
    facts: Facts = {"gpus": {}}
    last, whole = "its start", False
    for line in lines:
        if not line.endswith(b"\n"):
            break
        gpu, key, *value = json.loads(line)
        last = key if gpu is None else f"{key} of GPU {gpu}"
        whole = key == "end"
        where = facts if gpu is None else facts["gpus"].setdefault(gpu, {"handle": None})
        if value:
            where[key] = value[0]
        elif not whole and gpu is None:
            where.setdefault(key, LATE)
    return Report(facts, last, whole, late)
