"""Run a program and measure how long it took, the same way for every competitor."""

from __future__ import annotations

import os
import resource
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


class BenchError(Exception):
    """A competitor failed, or this machine lacks what the benchmark needs."""


@dataclass(frozen=True)
class TimedCall:
    """A program to run: its arguments, environment, folder and standard input."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    stdin: Path | None = None


def run(call: TimedCall, log: Path, limit: float = 600) -> float:
    """Run it with its output in `log`; return the seconds. Raises BenchError if it fails."""
    with log.open("wb") as said, (call.stdin or Path(os.devnull)).open("rb") as given:
        began = time.perf_counter()
        process = subprocess.Popen(
            call.argv,
            env=call.env,
            cwd=call.cwd,
            stdin=given,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        # `wait` with a timeout polls only every 50 ms.
        alarm = threading.Timer(limit, process.kill)
        alarm.start()
        code = process.wait()
        took = time.perf_counter() - began
        alarm.cancel()
    if code:
        end = log.read_text(errors="replace")[-3000:]
        raise BenchError(f"{' '.join(call.argv)[:300]}: exit {code}\n{end}")
    return took


def processor_time(call: TimedCall, log: Path) -> float:
    """Run it; return the seconds of processor time that it and what it started took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(call, log)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_output(call: TimedCall) -> float:
    """Return the seconds until it writes its first byte, to standard output or error."""
    began = time.perf_counter()
    process = subprocess.Popen(
        call.argv,
        env=call.env,
        cwd=call.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    first = os.read(process.stdout.fileno(), 1)
    took = time.perf_counter() - began
    process.communicate()
    if process.returncode or not first:
        raise BenchError(f"{' '.join(call.argv)}: exit {process.returncode}, no output")
    return took


class Stopwatch(threading.Thread):
    """Polls `seen()` every 10 ms in a thread; `at` is when it was first true."""

    def __init__(self, seen: Callable[[], bool]) -> None:
        super().__init__(daemon=True)
        self.at: float | None = None
        self._seen = seen
        self._over = threading.Event()

    def run(self) -> None:
        """Poll until it is seen, or wait() has given up."""
        while not self._over.wait(0.01):
            if self._seen():
                self.at = time.perf_counter()
                return

    def wait(self, limit: float) -> float:
        """Return when it was seen, by perf_counter. Raises BenchError after `limit` seconds."""
        self.join(limit)
        self._over.set()
        if self.at is None:
            raise BenchError(f"no first step within {limit:.0f} s after the command's end")
        return self.at
