"""Keeps the box's monitor running as long as there is a lease: starts it again if it was killed.

`onbox runs.keep_monitor BOX_HOME`; one per box.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from contextlib import suppress
from subprocess import DEVNULL, call

from .. import MAIN
from ..processes import begin_apart, identity, is_alive
from ..run_folder import RunFolder, write_whole

_PAUSE_S = 5


def keeping(home: str, main: str = MAIN) -> tuple[str, ...]:
    """Return the command that does it, with the program that starts by `main`."""
    return (f"{home}/agent/bin/python", "-I", "-S", "-B", main, "runs.keep_monitor", home)


def is_kept(home: str) -> bool:
    return is_alive(RunFolder(home).first("lease.pid"))


def keep(home: str) -> None:
    """See to it that the monitor is kept, if there is a lease."""
    if os.path.isfile(f"{home}/lease.json") and not is_kept(home):
        for begun in begin_apart(*keeping(home)):
            while begun.poll() is None and not is_kept(home):  # a step is about to ask
                time.sleep(0.02)


def main() -> None:
    home = sys.argv[1]
    with open(f"{home}/lease.lock", "a", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        write_whole(f"{home}/lease.pid", f"{identity(os.getpid())}\n")
        os.chdir("/")
        monitor = (sys.executable, "-I", "-B", MAIN, "runs.monitor", home, "--waits")
        while os.path.isfile(f"{home}/lease.json"):
            with suppress(OSError):  # the agent's environment is being made
                call(monitor, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
            time.sleep(_PAUSE_S)
