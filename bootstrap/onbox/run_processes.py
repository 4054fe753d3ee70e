"""Every process of a run, wherever it went, and how they end.

They are known by the run's cgroup, by the mark in their environment, and by descent: a box may
allow no cgroup, a program may overwrite its environment, and an orphan has lost the parent that
would show its run. Each is written as `processes.identity` writes it.

`onbox run_processes BOX_HOME REQUEST` ends `runs`, a pattern such as `*/train-2`, also ones that
wait for their turn, and prints what became of each.
"""

from __future__ import annotations

import os
import pwd
import signal
import stat
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from glob import escape, glob

from .processes import boot_id, file_at, is_alive, stat_of
from .run_folder import DIED, RunFolder, lines_of, note_end, write_whole
from .run_queue import take_out
from .step_report import question


def living(run: RunFolder | None, known: Iterable[str] = ()) -> list[str]:
    """Return the processes of a run, and those known before that are still alive, with what they
    started. Without a run only what is in the session of the ones known: a step of a setup may just
    have started a run."""
    stats = {number: one for number in os.listdir("/proc") if (one := stat_of(number))}
    found = {one.split()[0] for one in known if is_alive(one)}
    sessions = {stats[one].session for one in found & {*stats}}
    found |= _first_of(run, stats) if run else set()
    size = 0
    while size < len(found):
        size = len(found)
        for number, one in stats.items():
            if (run or one.session in sessions) and {one.parent, one.session} & found:
                found.add(number)
    found = {one for one in found & {*stats} if stats[one].state != "Z"} - {str(os.getpid())}
    boot = boot_id()
    return [f"{number} {stats[number].start} {boot}" for number in sorted(found, key=int)]


def is_since_restart(run: RunFolder) -> bool:
    """Return whether neither the box nor its container was restarted since a run began."""
    _, start, boot = [*run.first("pid").split(), "", "", ""][:3]
    init = stat_of("1")
    if not init or boot != boot_id() or not start.isdigit():
        return False
    return int(start) >= int(init.start)


def left_of(run: RunFolder) -> list[str]:
    """Return what lives on of a run that is over; of one that was killed with its runner, which
    nobody noted, what is found."""
    noted = run.lines("left") or []
    if run.state() == DIED and is_since_restart(run):
        return living(run, noted)
    return [one for one in noted if is_alive(one)]


def note_killed(run: RunFolder) -> None:
    """Note what it left if it was killed with its runner: it did not die with the box."""
    if run.state() == DIED and is_since_restart(run):
        with suppress(OSError):  # a full disk
            write_whole(f"{run.path}/left", "".join(f"{one}\n" for one in living(run)))


def _first_of(run: RunFolder, numbers: Iterable[str]) -> set[str]:
    """Return those that are known directly, by number or by a file in /proc."""
    group, child = run.first("cgroup"), run.child
    found = {*(lines_of(f"{group}/cgroup.procs") if group else ())}
    found |= {child.split()[0]} if is_alive(child) else set()
    # The same folder may have another path.
    paths = run.first("mark") or run.path, os.path.realpath(run.path)
    marks = {os.fsencode(f"BOXSTRAP_RUN={path}") for path in paths}
    for number in numbers:
        with suppress(OSError), open(f"/proc/{number}/environ", "rb") as file:
            found |= {number} if marks & {*file.read().split(b"\0")} else set()
    return found


def _signal(processes: Iterable[str], number: int) -> None:
    for one in processes:
        with suppress(OSError):  # it ended, or is another user's
            os.kill(int(one.split()[0]), number)


def _note(run: RunFolder, left: Sequence[str]) -> None:
    """Note what a run that ended left alive: it can be stopped again. And that it was ended, if its
    runner did not."""
    by = run.first("interrupted")
    with suppress(OSError):  # a full disk
        if left or run.has("left"):
            write_whole(f"{run.path}/left", "".join(f"{one}\n" for one in left))
        note_end(run, f"interrupted {by}" if by else "stop")
    with suppress(OSError):  # it has none, or somebody is in it
        os.rmdir(run.first("cgroup"))


def grace_of(run: RunFolder) -> float:
    """Return the second until which its processes may end on their own, if they are asked now. If
    the box is about to be taken away, that is five seconds earlier, for what is left to do then."""
    until = time.time() + run.grace
    return min([until, *(float(one) - 5 for one in run.first("interrupted").split()[2:3])])


def reap(run: RunFolder | None, left: list[str], kill: float) -> list[str]:
    """Ask the processes of a run, or those `left`, to end, each in its turn, and kill what is still
    there at the second `kill`. Return what is alive even then: another user's, or stuck in a
    driver."""
    turns = _Turns(run)
    while left := living(run, left):
        now = time.time()
        if now < kill:
            turns.ask_next([one.split()[0] for one in left])
        else:
            _signal(left, signal.SIGKILL)
        if now >= kill + 2:
            break
        time.sleep(0.1)
    return left


class _Turns:
    """Whose turn it is to end: first the topmost. A launcher ends its own processes, and a training
    may need its helpers until it has saved. A shell passes nothing on: what it waits for is asked
    with it. What reads the output of another comes after that one, whose last words would else end
    in a broken pipe. What was left detached earlier comes last."""

    def __init__(self, run: RunFolder | None) -> None:
        self._child = [*(run.child if run else "").split(), ""][0]
        self._parents: dict[str, str] = {}
        """As they were when each was first seen."""
        self._asked: set[str] = set()

    def ask_next(self, live: Sequence[str]) -> None:
        """Ask those whose turn it is (SIGTERM), each once."""
        for one in live:
            if one not in self._parents and (said := stat_of(one)):
                self._parents[one] = said.parent
        lines = {one: self._line(one) for one in live}
        main = {one for one, line in lines.items() if line[-1] == self._child}
        roles = {one: _role(one) for one in live}
        turn = []
        for one in main or live:
            inner = any(roles.get(above) == "program" for above in lines[one][1:])
            inner |= roles[one] == "wrapper" and one in map(self._parents.get, live)
            turn += [] if inner or one in self._asked else [one]
        free = [one for one in turn if not _reads_from(one, live)]
        # Those that wait for each other are asked at once.
        if free or any(roles[one] != "shell" for one in self._asked & {*(main or live)}):
            turn = free
        # A shell before what it waits for: it must not start anything else then.
        turn.sort(key=lambda one: (roles[one] != "shell", len(lines[one])))
        _signal(turn, signal.SIGTERM)
        self._asked.update(turn)

    def _line(self, one: str) -> list[str]:
        """Return it, and those of the run from which it descends."""
        line = [one]
        while one != self._child and (one := self._parents.get(one, "")) in self._parents:
            line.append(one)
        return line


def _role(one: str) -> str:
    """A `shell` passes no signal on; a `wrapper` ends with what it runs, and kills all of that if
    it is asked itself; else `program`."""
    if _name_of(one) in ("timeout", "time"):
        return "wrapper"
    with suppress(OSError):  # it is just ending
        if os.readlink(f"/proc/{one}/exe").endswith(("sh", "/busybox")):
            return "shell"
    return "program"


def _name_of(one: str) -> str:
    return RunFolder(f"/proc/{one}").first("comm")


def _reads_from(one: str, live: Iterable[str]) -> bool:
    """Whether its input is written by another of these: it ends by itself after that one."""
    outputs = {file_at(f"/proc/{each}/fd/{nr}") for each in live if each != one for nr in (1, 2)}
    source = f"/proc/{one}/fd/0"
    with suppress(OSError):  # another user's
        return file_at(source) in outputs and stat.S_ISFIFO(os.stat(source).st_mode)
    return False


def stop_run(run: RunFolder) -> list[str]:
    """End a run as a whole, whichever runner it has, or if it has none any more; return what `reap`
    does."""
    # With what was left before: another user's process may not be found in any other way now.
    left = living(run, run.lines("left") or [])
    runner, until = run.first("pid"), grace_of(run)
    if not is_alive(runner):
        # There is no runner to write it: a reader that follows the log must not conclude that the
        # run died.
        _note(run, left)
    elif run.has("mark"):
        _signal([runner], signal.SIGTERM)
        _await_end(runner, until + 5)
    left = reap(run, left, until)
    # The runner only has to write the exit code.
    _await_end(runner, time.time() + 5)
    _note(run, left)
    return left


def _await_end(process: str, until: float) -> None:
    while is_alive(process) and time.time() < until:
        time.sleep(0.1)


def _stop(run: RunFolder) -> None:
    name = os.path.basename(run.path)
    if not take_out([run], "stop"):
        if not (run.is_running or left_of(run)):
            return
        for number in (one.split()[0] for one in stop_run(run)):
            user = "UNKNOWN"
            with suppress(OSError, KeyError):
                user = pwd.getpwuid(os.stat(f"/proc/{number}").st_uid).pw_name
            sys.stdout.write(f"left\t{name}\t{number}\t{user}\t{_name_of(number)}\n")
    sys.stdout.write(f"stopped\t{name}\t{run.state()}\n")


def over(run: RunFolder) -> None:
    """Note which processes a run left, and what it made."""
    from .results.keep_results import asked  # slow to import

    # With what a stop has noted meanwhile: it may not be found in any other way.
    _note(run, living(run, run.lines("left") or []))
    asked("end", run.path)


def main() -> None:
    home, asked = question()
    for run in sorted(glob(f"{escape(home)}/runs/{asked['runs']}")):
        _stop(RunFolder(run))
