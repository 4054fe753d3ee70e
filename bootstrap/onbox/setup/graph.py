"""The graph of a setup's steps: each in a process of its own, so that it can be ended alone;
independent ones at the same time."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from ..processes import identity
from ..run_processes import reap
from .events import SetupEvents
from .wanted import WantedSetup

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LOOKS_S = 1.0
_EXITS = {("train", "9"): 9, ("gpu", "6"): 6, ("smoke", "6"): 6}
"""By step and its exit code: results of earlier runs would be lost; the box is to be returned."""


class StepGraph:
    def __init__(
        self, wanted: WantedSetup, events: SetupEvents, begin: Callable[[str, int], None]
    ) -> None:
        """`begin` does a step in its process, which may write events into an open file."""
        self._wanted, self._events, self._begin = wanted, events, begin
        self._waiting = [*wanted.steps]
        self._done: set[str] = set()
        self._processes: dict[str, int] = {}
        """The processes of steps that are at work."""
        # Low numbers are for what a step has open.
        self._read, self._write = map(_high, os.pipe())
        self._said = b""
        self.exit = 0
        """The exit code of the first that failed."""

    def run(self) -> int:
        """Run all, or until one fails; return the exit code."""
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        self._start_ready()
        while self._processes:
            if poll.poll(_LOOKS_S * 1000):
                self._said += os.read(self._read, 1 << 16)
                self._take_events()
            else:
                self._find_vanished()
            self._start_ready()
        return self.exit

    def _start_ready(self) -> None:
        for step in [] if self.exit else [*self._waiting]:
            if self._done.issuperset(self._wanted.needs(step)):
                self._waiting.remove(step)
                # A process that nobody knows of could not be ended.
                signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
                self._processes[step] = os.fork() or self._become(step)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _become(self, step: str) -> int:
        """Do a step, in its process."""
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        try:
            self._begin(step, self._write)
        finally:
            os._exit(1)

    def _take_events(self) -> None:
        *lines, self._said = self._said.split(b"\n")
        for line in lines:
            step, event, *pairs = [*line.decode("utf-8", "replace").split(), "", ""]
            # After a failure the other steps are ended: that they fail is no news.
            if event != "fail" or not self.exit:
                self._events.write(step, event, *filter(None, pairs))
            if event in ("ok", "skip"):
                self._end(step)
            elif event == "fail":
                self._end(step, pairs)

    def _end(self, step: str, failed: list[str] | None = None) -> None:
        process = self._processes.pop(step, 0)
        if process:  # it wasn't given up already
            os.waitpid(process, 0)
            self._note_end(step, failed)

    def _note_end(self, step: str, failed: list[str] | None) -> None:
        if failed is None:
            self._done.add(step)
        elif not self.exit:
            code = next((pair[3:] for pair in failed if pair.startswith("rc=")), "")
            self.exit = 5 if step == "preflight" else _EXITS.get((step, code), 7)
            self.end_all()

    def _find_vanished(self) -> None:
        """Find steps whose process is gone without a last event: killed, out of memory. What they
        wrote was read."""
        for step, process in [*self._processes.items()]:
            if os.waitpid(process, os.WNOHANG)[0]:
                del self._processes[step]
                # After a failure the engine ended it.
                if not self.exit:
                    self._events.write(step, "fail", "code=killed", "rc=137")
                self._note_end(step, [])

    def end_all(self) -> None:
        """End what is running, as a run is ended; a package manager is never interrupted."""
        running = (process for step, process in self._processes.items() if step != "tools")
        reap(None, [*filter(None, map(identity, running))], time.time() + self._wanted.grace_s)


def _high(file: int) -> int:
    from fcntl import F_DUPFD_CLOEXEC, fcntl

    with suppress(OSError):
        return fcntl(file, F_DUPFD_CLOEXEC, 10)
    return file
