"""Find what exists only on this box, before its lease destroys it.

`onbox lease.safety BOX_HOME` prints a line for each thing that is not safe, then `over`.
What can't be determined is not safe. Results are safe if RUN/safe, which a verified pull wrote, has
the digest of what is there now: `v1 DIGEST`.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from .. import MAIN
from ..git import trees_of
from ..results.complete_files import FileState, link_digest, state_of
from ..results.run_results import KEPT, OwnLook, OwnResults, RunResults
from ..run_folder import QUEUED, RUNNING, runs_below, write_whole
from ..run_processes import left_of
from ..work.made import look_at
from .activity import is_set_up

SAFE, DIGESTS, OVER = "safe", "lease.digests", "over"
MOST = 10
"""Most things that are named."""
VERSION = "v1"
_NO_CONTENT = frozenset({"stray", "dead", "special", "missing"})
"""Kinds of paths without content of their own that could be lost."""
_PEOPLE = range(1000, 60000)
"""User ids of people; root counts as one too."""
_PIECE = 1 << 20
_SETTLED_NS = 2 * 10**9
"""A file that changed more recently may change again without a change of its times."""
_KEPT_S = 10.0
"""Seconds of reading after which the digests so far are saved."""
_MADE = {
    "ref": "commits that were made here",
    "edits": "edited here",
    "staged": "staged here",
    "files": "new here",
    "ignored": "new here, and ignored by git",
    "risk": "ignored by git, and no run's result",
    "repositories": "submodules with commits of their own, perhaps",
    "unread": "git can't tell",
}
"""Sentences for what is told of trees."""
_CHANGED = "changed during the check"


def results_digest(present: Mapping[str, tuple[int, str]]) -> str:
    """Return one digest for all results of a run: of each one's path, size and SHA-256."""
    rows = [[path, *present[path]] for path in sorted(present)]
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def safe_note(present: Mapping[str, tuple[int, str]]) -> str:
    """Return the content of RUN/safe when all these results are on the user's machine."""
    return f"{VERSION} {results_digest(present)}"


class ResultsLook:
    """The results of all runs of a box. Digests are saved: a second look reads only what is new."""

    def __init__(self, box_home: Path) -> None:
        self._home = box_home
        self._before: dict[str, str] = {}
        with suppress(OSError, ValueError, AttributeError):
            kept = json.loads(own_text(box_home / DIGESTS))
            self._before = {str(key): str(value) for key, value in kept.items()}
        self._digests: dict[str, str] = {}
        self._kept = time.monotonic()
        self._begun = self._runs()
        self._looks: list[tuple[str, OwnResults, OwnLook]] = []

    def unsafe(self) -> Iterator[str]:
        """Yield each run whose results are not safe, and why."""
        for run in sorted(self._begun):
            if not (run / "dir").is_file() or not (
                (run / "results").is_file() or (run / "log_max").is_file()
            ):
                yield f"{run.name}: where its results are was not recorded"
            elif (run / "results").is_file() and (why := self._why_unsafe(run)):
                yield f"{run.name}: {why}"
        self._keep(self._digests)

    def changed(self) -> Iterator[str]:
        """Yield what changed since `unsafe` looked, which may have taken a while."""
        for name, looking, look in self._looks:
            if looking.look(live=False) != look:
                yield f"{name}: its results {_CHANGED}"
        if self._runs() != self._begun:
            yield f"runs: one began, and {_CHANGED}"

    def _runs(self) -> dict[Path, str]:
        """Return the runs that have started, with the process and start time of each."""
        return {note.parent: _text(note) for note in self._home.glob("runs/*/*/pid")}

    def _why_unsafe(self, run: Path) -> str:
        folder = RunResults(str(run))
        looking = OwnResults(folder, 0.0)
        look = looking.look(live=False)
        files = [one.file for one in look.files]
        left = [one for one in look.left_out if one.why not in _NO_CONTENT]
        waits = [one for one in files if one.why]
        if left or waits:
            return f"{(left or waits)[0].path} can't be told ({(left or waits)[0].why})"
        lost = [] if folder.given_up() else look.lost
        note = _note(run)
        if (files or lost) and not note:
            return "its results were never pulled whole"
        lost_before = [] if folder.is_home() else lost
        edited = [one for one in look.lost if one.why == "changed"]
        if lost_before or edited:
            return (
                f"{lost_before[0].path} was lost before it was pulled"
                if lost_before
                else f"{edited[0].path} was changed after its end, and no pull brings that"
            )
        present: dict[str, tuple[int, str]] = {}
        for file, kind in look.files:
            root = f"{run}/{KEPT}" if kind == "kept" else folder.tree
            digest = (
                link_digest(file.to)
                if file.to
                else self._digest(f"{root}/{file.path}", file.state, exact=kind != "kept")
            )
            if not digest:
                return f"{file.path} {_CHANGED}"
            present[file.path] = (file.state.size, digest)
        # What was overwritten since was pulled with the others: then the record says what is home.
        compares = not lost or any(one.kind == "after" for one in look.files)
        if files and compares and safe_note(present) != note:
            return "its results are not what was pulled"
        self._looks.append((run.name, looking, look))
        return ""

    def _digest(self, path: str, state: FileState, *, exact: bool = True) -> str:
        """Return the digest of a file in this state; "" if it has changed or can't be read.

        Not `exact`: a copy, which has the size and time of its file alone."""
        key = ",".join(map(str, state))
        last = None if exact else 4
        known = self._before.get(key)
        if not known:
            digest = hashlib.sha256()
            try:
                with _opened(path, "rb") as file:
                    while piece := file.read(_PIECE):
                        digest.update(piece)
                    if state_of(os.fstat(file.fileno()))[2:last] != state[2:last]:
                        return ""
            except OSError:
                return ""
            known = digest.hexdigest()
        if time.time_ns() - max(state.changed, state.modified) > _SETTLED_NS:
            self._digests[key] = known
        if time.monotonic() - self._kept > _KEPT_S:
            self._keep({**self._before, **self._digests})
        return known

    def _keep(self, digests: Mapping[str, str]) -> None:
        self._kept = time.monotonic()
        with suppress(OSError):  # a full disk: the files are read again
            write_whole(self._home / DIGESTS, json.dumps(digests, separators=(",", ":")))


def _text(file: Path) -> str:
    """Read a note of boxstrap's, whose paths may have any bytes."""
    text = os.fsdecode(file.read_bytes())
    return text[:-1] if text.endswith("\n") else text


def _opened(file: str | Path, mode: str) -> IO[Any]:
    """Open a file for reading. Raises OSError, also if it is a symlink."""
    return os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), mode)


def own_text(file: Path) -> str:
    """Read a file that only the current user can have written. Raises OSError."""
    with _opened(file, "r") as text:
        found = os.fstat(text.fileno())
        is_own = found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not (is_own and stat.S_ISREG(found.st_mode)):
            raise PermissionError(f"{file} belongs to another user, or others may write to it")
        return str(text.read())


def _note(run: Path) -> str:
    try:
        return own_text(run / SAFE).strip()
    except (OSError, ValueError):
        return ""


def unsafe_work(box_home: Path) -> Iterator[str]:
    """Yield live runs and what they left, folders that were moved, and new work in the trees."""
    for run in runs_below(box_home / "runs"):
        if run.state() in (RUNNING, QUEUED) or left_of(run):
            yield f"{run.name.partition('/')[2]}: still running"
    for tree in trees_of(str(box_home)):
        placed = Path(tree.notes, "repo.placed").exists()
        if placed and tree.number == "1" and not os.path.lexists(tree.path):
            yield f"{tree.name}: its folder is not there, and may be elsewhere"
        for row in look_at(tree):
            if row["kind"] != "tree":
                names = row.get("names") or [row.get("name") or row.get("path")]
                yield f"{names[-1]}: {_MADE[str(row.get('what', row['kind']))]}"


def people() -> list[str]:
    """Return the homes of the users who may log in."""
    return [one.pw_dir for one in pwd.getpwall() if one.pw_uid == 0 or one.pw_uid in _PEOPLE]


def working_folders() -> list[str]:
    """Return the folders that other setups may have been told to work in."""
    return [str(one) for folder in ("/", *people()) for one in Path(folder).glob("*")]


def unsafe_homes(box_home: Path, homes: Sequence[str], others: Iterable[str]) -> Iterator[str]:
    """Yield boxstrap's folders of other users and of other working folders."""
    own = box_home.stat()
    for place in sorted({*homes, *others}):
        folder = Path(place, ".boxstrap")
        try:
            if not os.path.samestat(folder.stat(), own):
                yield f"{folder}: what was started from there is not checked"
        except PermissionError:
            if place in homes:
                yield f"{folder}: it may not be looked at"
        except OSError:  # there is none
            continue


def all_unsafe(box_home: Path) -> Iterator[str]:
    """Yield everything unsafe; nothing if the box may be destroyed."""
    results = ResultsLook(box_home)
    yield from results.unsafe()
    yield from unsafe_homes(box_home, people(), working_folders())
    if is_set_up(box_home):
        yield "setup: one is running"
    yield from unsafe_work(box_home)  # late: a run may start while results are read
    yield from results.changed()


class SafetyLook:
    """A look in its own process, which may take as long as it needs."""

    def __init__(self, box_home: Path) -> None:
        self._command = [sys.executable, "-I", "-B", MAIN, "lease.safety", str(box_home)]
        self._at_work: subprocess.Popen[str] | None = None
        self.found: list[str] | None = None
        """What the last finished look found unsafe; None before there was one."""

    @property
    def is_under_way(self) -> bool:
        """Whether a look was started and its result not taken yet."""
        return self._at_work is not None

    def begin(self) -> None:
        """Start a look; one that is still running is killed."""
        self.end()
        with suppress(OSError):
            self._at_work = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )

    def tell(self) -> list[str] | None:
        """Return what the look found, once; None while it runs or if there is none."""
        if self._at_work is None or self._at_work.poll() is None:
            return None
        lines = self._at_work.communicate()[0].splitlines()
        self._at_work = None
        is_whole = lines[-1:] == [OVER]
        self.found = lines[:-1] if is_whole else ["the box: it can't be looked at"]
        return self.found

    def end(self) -> None:
        """Kill the look, if there is one."""
        if self._at_work is not None:
            self._at_work.kill()
            self._at_work.communicate()
            self._at_work = None


def main() -> None:
    """Print what is unsafe, at the lowest priority: training comes first."""
    os.nice(19)
    os.umask(0o077)
    for number, line in enumerate(all_unsafe(Path(sys.argv[1]))):
        if number < MOST:
            sys.stdout.write("".join(c if c.isprintable() else "?" for c in line)[:300] + "\n")
    sys.stdout.write(OVER + "\n")
