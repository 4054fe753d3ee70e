"""One setup at a time on a box. The lock is a flock; the file says who holds it: its process, its
script, its id."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import suppress

from ..processes import file_at, identity, is_alive, stat_of
from ..run_folder import RunFolder, lines_of, names_in
from ..run_processes import reap

TYPE_CHECKING = False
if TYPE_CHECKING:  # slow to import
    from typing import IO

_GRACE_S = 10.0
_OF_STAGE0 = 9
_MANAGERS = ("apt-get", "dnf", "yum", "microdnf", "zypper", "pacman", "apk", "dpkg", "rpm")
"""They are waited for, and never interrupted."""


class SameSetupError(Exception):
    """The same setup is at work."""


def take_lock(
    home: str,
    wait_s: float,
    waits: Callable[[str], None],
    *,
    script: str = "",
    grace: float = _GRACE_S,
) -> IO[str] | None:
    """Return the lock, until it is closed; None if somebody kept it. `waits` is told for which
    setup. What the file says stays: that was the last. `grace`: for how many seconds what a killed
    setup left may go on once it is asked to end. Raises SameSetupError if the holder has the same
    `script`."""
    lock = _opened(f"{home}/lock")
    until, told = time.monotonic() + wait_s, False
    while not (_is_ours(lock) or (_end_leftovers(home, grace) and _is_ours(lock))):
        process, same, setup = holder(home)
        # One that is over may hold it a moment longer, by a child that has yet to become a program.
        if script and same == script and is_alive(process) and not _is_over(home, setup):
            lock.close()
            raise SameSetupError
        if not told:
            waits(setup)
        if time.monotonic() >= until:
            lock.close()
            return None
        told = True
        time.sleep(0.05)
    # A setup that was killed left the lock free, but perhaps a uv or a git that still writes.
    _end_leftovers(home, grace)
    return lock


def _opened(path: str) -> IO[str]:
    """Stage 0 may hold it, where it brought the Python in which this runs."""
    if file_at(f"/proc/self/fd/{_OF_STAGE0}") == file_at(path) != (-1, -1):
        os.set_inheritable(_OF_STAGE0, False)
        return open(_OF_STAGE0, "a", encoding="ascii")
    return open(path, "a", encoding="ascii")


def holder(home: str) -> list[str]:
    return [*lines_of(f"{home}/lock"), "", "", ""][:3]


def _is_ours(lock: IO[str]) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _is_over(home: str, setup: str) -> bool:
    return '"state":"over"' in RunFolder(f"{home}/setups/{setup}").first("status.json")


def _end_leftovers(home: str, grace: float) -> bool:
    """End what a killed setup left running, as a run is ended; return whether there was anything.
    One that ended by itself left nothing. A training has a session of its own."""
    process, _, setup = holder(home)
    left: list[str] = []
    if not setup or _is_over(home, setup) or is_alive(process):
        return False
    for number in filter(str.isdigit, names_in("/proc")):
        stat, one = stat_of(number), RunFolder(f"/proc/{number}")
        said = [*(one.lines("cmdline") or []), *(one.lines("environ") or [])]
        # Numbers are used again, above all after a restart: each must also name the setup.
        if stat and stat.session == process.split(" ")[0] and setup in "".join(said):
            if one.first("comm") in _MANAGERS:
                return False
            left.append(identity(int(number)))
    reap(None, left, time.time() + grace)
    return bool(left)
