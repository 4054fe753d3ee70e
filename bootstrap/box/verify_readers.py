"""Runs the readers, all at the same time, each in a process of its own with a time limit.

A reader that hangs is killed and abandoned, never waited for: in the kernel's D
state even SIGKILL has no effect. What it began to read and never got is known then.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
Facts = Any  # readings by key, and `gpus`: such readings by index

LATE = {"error": "late"}  # was begun, and never came


class OwnError(Exception):
    """The check itself could not be made."""


class Reader(NamedTuple):
    """A script beside this one, its arguments, and the seconds that it has."""

    script: str
    arguments: Sequence[str]
    limit: float


class Report(NamedTuple):
    """What a reader reported: facts, what it read last, whether it came to its end, how it ended.

    `exit_code` is None for one that was killed for taking too long; negative for a signal.
    """

    facts: Facts
    last: str
    whole: bool
    exit_code: int | None


def run(readers: Sequence[Reader]) -> list[Report]:
    """The report of each. Raises OwnError where one failed by its own fault.

    The one with the least time is listened to first: what the others write
    meanwhile waits in their pipes.
    """
    started = time.monotonic()
    running = [(reader, start(reader)) for reader in readers]
    running.sort(key=lambda each: each[0].limit)
    reports = {reader: finish(reader, process, started) for reader, process in running}
    return [reports[reader] for reader in readers]


def start(reader: Reader) -> subprocess.Popen[bytes]:
    """Begin to read."""
    return subprocess.Popen(
        [sys.executable, "-B", str(HERE / reader.script), *reader.arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def finish(reader: Reader, process: subprocess.Popen[bytes], started: float) -> Report:
    """Wait for its end, but not for longer than its limit."""
    try:
        left = max(0.0, started + reader.limit - time.monotonic())
        out, err = process.communicate(timeout=left)
    except subprocess.TimeoutExpired as late:
        process.kill()
        return assemble((late.output or b"").splitlines(keepends=True), None)
    report = assemble(out.splitlines(keepends=True), process.returncode)
    if not report.whole and process.returncode >= 0:
        last = err.decode(errors="replace").strip().splitlines()[-1:]
        raise OwnError(f"the reader {reader.script} failed: {''.join(last)}")
    return report


def assemble(lines: Iterable[bytes], exit_code: int | None) -> Report:
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
    return Report(facts, last, whole, exit_code)
