"""Record what a run makes, and keep the results of earlier runs before another begins.

`onbox results.keep_results WORD ...`:
begin RUN [SECONDS]   before a run begins: earlier results; then what is there
room RUN [SECONDS]    for one that waits for its turn: earlier results alone
give-up RUN           as `begin`, but earlier results may be overwritten
look RUN TREE PATH... could a run begin there?
end RUN               after its end: what it made

Results that are not home are copied into the folder of their run: as clones of their blocks, which
takes no time and no room, or byte by byte within SECONDS. Exits with 9 if that can't be done, after
a line for each run: name, files, bytes, why (large, room, slow, unread).
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from .complete_files import Files, FileState, is_text, state_of
from .copies import FOREVER, CantKeep, clone, copy_bytes
from .run_results import (
    BEFORE,
    GIVEN_UP,
    KEPT,
    Neighbours,
    RunResults,
    is_unchanged,
    made_by,
    runs_of,
    settle,
    write_files,
)

REFUSED = 9
QUICK_S, QUICK_BYTES = 10.0, 2 << 30
"""Longest time, and most bytes, of copies that somebody waits for."""
SPARE = 1 << 30
"""Bytes that must stay free beside a copy and the room for as much again; of less, as much."""
_COARSE_NS, _TICK_NS, _COARSE_TICK_NS = 10**6, 2 * 10**7, 10**9
"""A file system whose times are multiples of a millisecond may count whole seconds."""


class Keeping:
    """The copies of one run's results that are made before another run begins."""

    def __init__(self, run: RunResults, made: Files, later: list[RunResults]) -> None:
        """`later`: runs that began there after it."""
        self.run, self._aside = run, f"{run.path}/results.new.{os.getpid()}"
        self.files = made.only(
            lambda path: (
                not run.has_kept(path, made[path]) and self._is_there(path, made[path], later)
            )
        )

    @property
    def size(self) -> int:
        """Bytes, holes included."""
        return sum(state.size for state in self.files.values())

    def _is_there(self, path: str, made: FileState, later: list[RunResults]) -> bool:
        now = self.run.state_in_place(path)
        return now is not None and is_unchanged(self.run, path, made, now, later)

    def _source(self, path: str) -> str:
        return os.path.join(self.run.tree, path)

    def check(self, until: float) -> bool:
        """Return whether blocks can be shared. Raises CantKeep if it can't be copied either."""
        path = next((path for path in self.files if path not in self.files.links), "")
        if not path:
            return False
        try:
            with open(self._source(path), "rb") as source, open(self._aside, "wb") as copy:
                if clone(source.fileno(), copy.fileno()):
                    return True
            self._check_room(self.size, until)
        except OSError as error:
            raise _why(error) from error
        finally:
            with suppress(OSError):
                os.unlink(self._aside)
        return False

    def keep(self, until: float) -> None:
        """Copy all. Raises CantKeep."""
        clones, rest = self.check(until), self.size
        try:
            for path, state in sorted(self.files.items(), key=lambda one: one[1].size):
                if to := self.files.links.get(path):
                    with suppress(FileNotFoundError):
                        os.unlink(self._aside)
                    os.symlink(to, self._aside)
                    self._name(path, state)
                    continue
                with open(self._source(path), "rb") as source, open(self._aside, "wb") as copy:
                    if not (clones and clone(source.fileno(), copy.fileno())):
                        self._check_room(rest, until)
                        copy_bytes(source.fileno(), copy.fileno(), until)
                    now = state_of(os.fstat(source.fileno()))
                rest -= state.size
                if now[2:4] == state[2:4]:  # else somebody has just written it
                    self._name(path, state)
        except OSError as error:
            raise _why(error) from error
        finally:
            with suppress(OSError):
                os.unlink(self._aside)

    def _check_room(self, size: int, until: float) -> None:
        found = os.statvfs(self.run.path)
        if until != FOREVER and size > QUICK_BYTES:
            raise CantKeep("large")
        if found.f_bavail * found.f_frsize < 2 * size + min(SPARE, size):
            raise CantKeep("room")

    def _name(self, path: str, state: FileState) -> None:
        """Give a copy its name, in one step. It has the time of its file, which proves it."""
        place = f"{self.run.path}/{KEPT}/{path}"
        os.utime(self._aside, ns=(state.modified, state.modified), follow_symlinks=False)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.replace(self._aside, place)


def _why(error: OSError) -> CantKeep:
    return CantKeep("room" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "unread")


def earlier(run: RunResults, *, live: bool = False) -> list[Keeping]:
    """Return what would be lost of earlier runs; `live`: also of one that is stopped before.

    Raises CantKeep if it can't be told.
    """
    near = Neighbours(run)
    for other in reversed(near.runs):
        if other.paths and other.is_over and not settle(other, at_last=True):
            raise CantKeep("room")  # for the record
    found = []
    for other in near.runs:
        if other.paths and other.is_over and not (other.is_home() or other.given_up()):
            later = [one for one in near.runs if one.begun > other.begun]
            found.append(Keeping(other, other.wanted(other.made() or Files()), later))
        elif live and not other.is_over and other.tree == run.tree:
            found.append(
                Keeping(other, made_by(other, other.find(), Neighbours(other), live=True), [])
            )
    return [one for one in found if one.files and not one.run.is_home(one.files)]


def begin(run: RunResults, word: str, seconds: float) -> int:
    """Make sure that nothing is lost when a run begins, and note what is there."""
    if run.begun:
        return 0
    refused = 0
    until = time.monotonic() + seconds
    for one in earlier(run, live=word == "look"):
        if word == "give-up":
            with open(f"{one.run.path}/{GIVEN_UP}", "w", encoding="utf-8") as note:
                note.write(f"{run.name}\n")
            continue
        try:
            if word == "look":
                one.check(until)
            else:
                one.keep(until)
        except CantKeep as error:
            refused = REFUSED
            print(one.run.name, len(one.files), one.size, error)
    if not refused and word in ("begin", "give-up"):
        if os.path.exists(f"{run.path}/resumes"):
            from .put_back import put_back  # late: few runs do so

            put_back(run)
        note_before(run)
    return refused


def note_before(run: RunResults) -> None:
    """Note what is there. If the disk is full all that is there counts as the run's later."""
    files = run.find()
    wait_for_tick(files.values())
    with suppress(OSError):
        os.unlink(f"{run.path}/{BEFORE}")
    write_files(f"{run.path}/{BEFORE}", files)


def wait_for_tick(files: object) -> None:
    """Wait until what is written from now on gets another time than any of these files has."""
    now = time.time_ns()
    last = max((max(one.modified, one.changed) for one in files), default=0)  # type: ignore[attr-defined]
    tick = _TICK_NS if last % _COARSE_NS else _COARSE_TICK_NS
    if now - tick < last <= now:
        time.sleep((last + tick - now) / 1e9)


def end(run: RunResults) -> int:
    """Record what a run made."""
    settle(run)
    return 0


def status(home: str) -> Iterator[Mapping[str, object]]:
    """Yield for each run with results that is over: whether they are at home, numbers of files,
    bytes, bytes of copies, lost files, and which runs overwrote these."""
    for run in runs_of(home):
        if not run.paths or not run.is_over:
            continue
        settle(run)
        made = run.made()
        if made is None:
            continue
        odd = [
            now.size
            for path, now in made.left.items()
            if not (is_text(path) or run.lets_go(path)) and run.state_in_place(path) == now
        ]
        made = run.wanted(made)
        near = Neighbours(run)
        later, kept, lost, by = near.later, 0, 0, []
        for path, state in made.items():
            if run.has_kept(path, state):
                kept += state.size
                continue
            now = run.state_in_place(path)
            if now is None or not is_unchanged(run, path, state, now, later):
                lost += 1
                owner = now and near.owner(run.place_of(path), now)
                by += [owner.name] if owner and owner.name not in by else []
        yield {
            "run": f"{run.key}/{run.name}",
            "is_home": run.is_home(),
            "files": len(made) + len(odd),
            "bytes": sum(state.size for state in made.values()) + sum(odd),
            "kept_bytes": kept,
            "lost_files": lost,
            "overwritten_by": by,
        }


def clean_copies(home: str, *, look: bool) -> int:
    """Remove copies that are at home, or only `look`; return their bytes."""
    from shutil import rmtree  # slow to import

    total = 0
    for run in runs_of(home):
        folder = f"{run.path}/{KEPT}"
        if run.made() is not None and os.path.isdir(folder) and (run.is_home() or run.given_up()):
            total += run.kept_bytes()
            if not look:
                rmtree(folder)
    return total


def asked(word: str, place: str, *more: str) -> int:
    """Do what is asked for of a run; return the exit code."""
    try:
        if word == "end":
            return end(RunResults(place))
        if word == "look":
            return begin(RunResults(place, more[0], more[1:]), word, QUICK_S)
        return begin(RunResults(place), word, float(more[0]) if more else QUICK_S)
    except CantKeep as error:
        print("-", 0, 0, error)
        return REFUSED


def main() -> int:
    return asked(*sys.argv[1:])
