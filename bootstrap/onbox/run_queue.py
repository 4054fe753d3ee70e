"""Runs that wait for their turn on a box; the first made starts first.

RUN/queue says what it waits for: `after RUN` (that ended with 0), `after-any RUN` (it ended),
`gpus` (no other run has its GPUs). Only the holder of the lock decides: a run leaves the queue by
`pid`, when it begins, or by `exit`.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress

from . import MAIN
from .processes import begin_apart, identity
from .run_folder import DIED, QUEUED, RUNNING, WAITING, RunFolder, note_end, runs_below, write_whole


@contextmanager
def _deciding(home: str) -> Iterator[None]:
    """Hold the queue's lock. Raises OSError, also if its holder copies results for 20 s."""
    with open(f"{home}/queue.lock", "a", encoding="ascii") as lock:
        for _ in range(400):
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.05)
        else:
            raise TimeoutError
        yield


def may_begin(run: RunFolder) -> bool | None:
    """Return whether its turn has come; None: never, because the run before it failed."""
    waits_for, _, name = run.first("queue").partition(" ")
    if waits_for == "gpus":
        return not any(_is_in_the_way(other, run) for other in runs_below(f"{run.home}/runs"))
    name = name if "/" in name else f"{run.key}/{name}"
    before = last_of(RunFolder(f"{run.home}/runs/{name}"))
    state = before.state() if os.path.isdir(before.path) else ""
    if state in (RUNNING, QUEUED, WAITING) or (waits_for, state) == ("after", DIED):
        return False  # one that died may still be resumed
    # One that was stopped or interrupted may have ended with 0, and did not do its work.
    is_cut = any(re.fullmatch("stop|interrupted .*", one) for one in before.lines("ended") or [])
    return True if waits_for == "after-any" or (state == "finished 0" and not is_cut) else None


def last_of(run: RunFolder) -> RunFolder:
    """Return the last run that resumed it, directly or not; itself if none did."""
    others = runs_below(f"{run.home}/runs")
    while again := [one for one in others if one.first("resumes") == run.name]:
        run = max(again, key=lambda one: _written(f"{one.path}/resumes"))
    return run


def _is_in_the_way(other: RunFolder, run: RunFolder) -> bool:
    """Whether another run has one of a run's GPUs, or is before it in the queue for one. One that
    names no GPUs has all of them; one that waits for another run wants none yet."""
    mine, theirs = (set(filter(None, one.first("gpus").split(","))) for one in (run, other))
    if other.name == run.name or other.has("exit") or (mine and theirs and not mine & theirs):
        return False
    state = other.state()
    return state == RUNNING or (
        (state, other.first("queue")) == (QUEUED, "gpus")
        and _written(f"{other.path}/queue") < _written(f"{run.path}/queue")
    )


def _written(path: str) -> int:
    return os.stat(path).st_mtime_ns


def take_out(runs: Sequence[RunFolder], why: str) -> bool:
    """Take these out of the queue; return whether one was in it."""
    taken = 0
    for named in [run for run in runs if run.state() == QUEUED][:1]:
        with suppress(OSError), _deciding(named.home):
            for run in runs:
                if run.state() == QUEUED:
                    note_end(run, why)
                    taken += 1
    return taken > 0


def unattended(home: str) -> list[RunFolder]:
    """Return the queued runs that no process waits for: the box was restarted, or it was killed."""
    waiting = (run for run in runs_below(f"{home}/runs") if run.has("queue"))
    return [run for run in waiting if run.state() == QUEUED and not run.is_attended]


def revive(home: str) -> None:
    """Give each queued run a runner, which waits for its turn, if it has none."""
    if unattended(home):
        with suppress(OSError), _deciding(home):
            _revive(home)


def runner_of(run: RunFolder) -> list[str]:
    """Return the program that a run belongs to."""
    python = (sys.executable, "-I", "-S", "-B", "-X", "utf8")
    return [*python, MAIN, "runs.runner", run.path]


def _revive(home: str) -> None:
    """Do so with the lock held."""
    for run in unattended(home):
        if may_begin(run) is None:  # it is told at once of one that never begins
            note_end(run, run.first("queue"))
            continue
        program = runner_of(run)
        with suppress(OSError):  # one that can't be noted would end at once; others get theirs
            write_whole(f"{run.path}/waiter", "\n")
            for waiter in begin_apart(*program):
                write_whole(f"{run.path}/waiter", f"{identity(waiter.pid)}\n")


def wait_for_turn(run: RunFolder) -> None:
    """Wait until its turn has come, and make this process its runner."""
    signal.signal(signal.SIGHUP, lambda *_: None)
    while not _take_turn(run):
        time.sleep(1)


def _take_turn(run: RunFolder) -> bool:
    """Claim the run if its turn has come; return False if it has to wait. Exits where it is not
    this process that waits for it, or it never begins."""
    me = identity(os.getpid())
    with suppress(OSError), _deciding(run.home):
        if run.state() != QUEUED or run.first("waiter") != me:
            sys.exit()
        # Waiters that were killed or lost in a restart: their runs would block the ones after them.
        _revive(run.home)
        may = may_begin(run)
        if may is None:
            note_end(run, run.first("queue"))
            sys.exit()
        if may and _keep_results(run):
            write_whole(f"{run.path}/pid", f"{me}\n")
            return True
    return False


def _keep_results(run: RunFolder) -> bool:
    """Keep the results of earlier runs, in a folder that trees share; False while that can't be
    done. Raises OSError."""
    from .results.keep_results import asked  # slow to import

    note = f"{run.path}/results.blocked"
    with open(note, "w", encoding="utf-8") as said, redirect_stdout(said):
        refused = asked("begin", run.path)
    if not refused:
        os.unlink(note)
    return not refused
