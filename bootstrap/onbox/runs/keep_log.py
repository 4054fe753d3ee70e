"""While a run's command is alive, note when its log grew, and drop the oldest part of a log above
its limit. Also starts the box's monitor and the upload of results.

A run's runner forks the process that does this; the command writes its log itself, through no
process of boxstrap's.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress

from .. import MAIN
from ..processes import begin_apart, is_alive
from ..run_folder import RunFolder, lines_of, write_whole
from .memory_kills import note_kills

_NO_LIMIT = 1 << 60


class LogKeeper:
    """The log of a run that is alive, and when it grew: `times`. Dropping a part of it does not
    change offsets, so a reader that follows it keeps its place."""

    def __init__(self, run: RunFolder) -> None:
        self._run, self._log, self._times = run, f"{run.path}/log", f"{run.path}/times"
        self._most = int(run.first("log_max") or _NO_LIMIT)
        self._kept = self.size = 0
        self.pause = 0.3
        """Seconds until the next look."""
        self._note()

    def look(self) -> None:
        """Note it if the log grew, and keep its limit."""
        with suppress(OSError):  # a full disk
            now = os.stat(self._log).st_size
            if now < self.size:  # it was emptied: start again
                self.size = self._kept = 0
                os.truncate(self._times, 0)
                self._note()
            if now > self.size:
                self.pause = 1 if now - self.size < self._most // 64 else 0.1
                self.size = now
                self._note()
                # Below the limit: making room takes time, and the log grows in the meantime.
                if now - self._kept > self._most * 3 // 4:
                    self._drop_before(now - self._most // 2)

    def _note(self) -> None:
        """Add the time and how long the log is. The first line says from which byte it is kept."""
        with suppress(OSError), open(self._times, "a", encoding="ascii") as file:
            file.write(f"{int(time.time())} {self.size}\n")
            if file.tell() > 1 << 21:  # a run of weeks
                write_whole(self._times, "\n".join([*lines_of(self._times)[::2], ""]))

    def _drop_before(self, end: int) -> None:
        """Drop the log before `end`, up to the end of that line."""
        # A file system without holes drops nothing; `disk_low` says when that matters.
        if not _punch(self._times, 1 << 40, 4096):
            self._most = _NO_LIMIT
            return
        with open(self._log, "rb") as log:
            log.seek(end)
            end += len(log.readline(1 << 16))
        # Later times stay, after a first line that says where the kept part starts: there a reader
        # finds a hole's end.
        rows = self._run.times
        earlier = [0, *(at for at, size in rows if size <= end)]
        rows = [(earlier[-1], end), *rows[len(earlier) - 1 :]]
        write_whole(self._times, "".join(f"{at} {size}\n" for at, size in rows))
        if _punch(self._log, self._kept, end - self._kept):
            self._kept = end


def _punch(file: str, at: int, length: int) -> bool:
    """Make a hole in a file; return whether it can have one. After its end it stays as it is."""
    words = ("fallocate", "-p", "-o", str(at), "-l", str(length), file)
    return any(begun.wait() == 0 for begun in begin_apart(*words))


def keep(command: str, run: RunFolder) -> None:
    """Do so until that process is over, as `processes.identity` writes it. The runner blocks the
    signal by which it ends this."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    # The runner ends it so: not in the middle of dropping a part.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    note_kills(run, command.partition(" ")[0])
    python, begun, others = f"{run.home}/agent/bin/python", time.monotonic(), []
    if run.has("results_to"):
        others += begin_apart(python, "-I", "-B", MAIN, "bucket.upload_results", run.path)
    monitor = (python, "-I", "-B", MAIN, "runs.monitor", run.home)
    keeper, is_watched = LogKeeper(run), False
    while is_alive(command) and not select.select([woken], [], [], keeper.pause)[0]:
        keeper.look()
        # One per box: a second one exits. A run that ends right away needs none, and one that has
        # printed nothing yet is mostly loading its libraries, and needs its cores for that.
        if not is_watched and time.monotonic() - begun >= (5 if keeper.size else 15):
            others, is_watched = others + begin_apart(*monitor), True
        for other in others:
            other.poll()
    keeper.look()
    # Whoever wants to be told is told of a short run, too.
    if not is_watched and (run.has("notify") or run.has("notify_to")):
        begin_apart(*monitor)
