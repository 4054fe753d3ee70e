"""Runs the readers, all at the same time, each in a process of its own with a time limit.

They are forked: a Python that is begun anew takes longer to start than most of them to read.
A reader that hangs is killed and abandoned, never waited for: in the kernel's D
state even SIGKILL has no effect. What it began to read and never got is known then.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys  # full
import time
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from .reader_output import emit

Facts = Any  # readings by key, and `gpus`: such readings by index

LATE = {"error": "late"}  # was begun, and never came


class OwnError(Exception):
    """The check itself could not be made."""


class Reader(NamedTuple):
    """A module beside this one, the arguments of its `main`, and the seconds that it has."""

    module: str
    arguments: Sequence[str]
    limit: float


class Child(NamedTuple):
    """A reader at work: its process, and the pipe that it writes to."""

    process: int
    pipe: int


class Report(NamedTuple):
    """What a reader reported: its facts, what it read last, is that all, was it too late."""

    facts: Facts
    last: str
    whole: bool
    late: bool


def run(readers: Sequence[Reader]) -> list[Report]:
    """The report of each. Raises OwnError where one failed by its own fault.

    The one with the least time is listened to first: what the others write
    meanwhile waits in their pipes.
    """
    started = time.monotonic()
    running = [(reader, start(reader)) for reader in readers]
    running.sort(key=lambda each: each[0].limit)  # full
    reports = {reader: finish(reader, child, started) for reader, child in running}
    return [reports[reader] for reader in readers]


def start(reader: Reader) -> Child:
    """Begin to read."""
    ours, theirs = os.pipe()
    process = os.fork()
    if process == 0:
        read(reader, theirs)
    os.close(theirs)
    return Child(process, ours)


def read(reader: Reader, pipe: int) -> None:
    """The process that reads; it keeps nothing open that somebody else may wait for."""
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, file in enumerate((nothing, pipe, nothing)):
            os.dup2(file, number)
        os.closerange(3, 256)
        sys.argv = [reader.module, *reader.arguments]  # full
        import_module(f".{reader.module}", __package__).main()
    except BaseException as error:  # whatever it is, the parent tells it
        emit(None, "failed", f"{type(error).__name__}: {error}")
    finally:  # where the parent is gone, too, this never goes on as it would
        os._exit(0)


def finish(reader: Reader, child: Child, started: float) -> Report:
    """Wait for its end, but not for longer than its limit."""
    said, late = b"", True
    while late:
        left = max(0.0, started + reader.limit - time.monotonic())
        if not select.select([child.pipe], [], [], left)[0]:
            os.kill(child.process, signal.SIGKILL)
            break
        piece = os.read(child.pipe, 1 << 16)
        said += piece
        late = bool(piece)
    report = assemble(said.splitlines(keepends=True), late=late)
    if "failed" in report.facts:
        raise OwnError(f"the reader {reader.module} failed: {report.facts['failed']}")
    return report


def assemble(lines: Iterable[bytes], *, late: bool = False) -> Report:
    """The report in a reader's lines, as `reader_output.py` writes them."""
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
