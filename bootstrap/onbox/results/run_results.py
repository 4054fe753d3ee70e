"""What each run of a box made, and where that is now; for Python 3.8.

`results.before` in a run's folder has what lay at its results when it began; `results.made` what
was new or changed when it ended. That, and only that, is its results, whatever is written to the
same paths later. `results.kept` has copies, made before a later run began there. A run without
`results.before`, started by an earlier version or on a full disk, has all that no other run made.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import NamedTuple

from ..git import BoxTree
from ..processes import boot_id, held_files
from ..run_folder import DIED, FINISHED, RunFolder, lines_of, runs_below, write_whole
from .complete_files import (
    CompleteFiles,
    Files,
    FileState,
    Finder,
    LeftOut,
    ResultFile,
    checkpoints,
    link_state,
    state_of,
)

BEFORE, MADE, KEPT = "results.before", "results.made", "results.kept"
HOME = "results.home"
"""The digest (`digest_of`) of what a verified pull brought home."""
GIVEN_UP = "results.given_up"
"""Its results may be overwritten: the user said so. Has the name of the run that may."""
LET_GO = "results.without"
"""Which of its results the user lets go of: paths and patterns, as a list of JSON."""
VERSION = 1


class Record(NamedTuple):
    """A record of files, and when it was made: see `_clock`."""

    files: Files
    boot: str
    at: float


class LostFile(NamedTuple):
    """A result that is not on the box any more."""

    path: str
    state: FileState
    """As it was when its run ended."""
    why: str
    """by (another run has it, or a later one has results there), changed (by no run: no pull brings
    what is there now), gone (also where git has what is there now)."""
    by: str
    """That run, for `by`."""


class OwnFile(NamedTuple):
    """A file of a run: where it is, and whether the run made it."""

    file: ResultFile
    kind: str
    """own; kept: in the run's folder, see KEPT; after: no run made it, so it comes with the last
    run there."""


class OwnLook(NamedTuple):
    """What one look found of a run's results."""

    files: list[OwnFile]
    left_out: list[LeftOut]
    lost: list[LostFile]


class RunResults:
    """The folder of one run, and its notes."""

    def __init__(self, path: str, tree: str = "", paths: Iterable[str] = ()) -> None:
        """`tree` and `paths` are used if the run noted none; a node after the first noted all."""
        self.path, self.name = path, os.path.basename(path)
        self.key = os.path.basename(os.path.dirname(path))
        self.tree = "".join(lines_of(f"{path}/dir")[:1]) or tree
        self.is_later_node = lines_of(f"{path}/nodes/rank")[:1] not in ([], ["0"])
        self.results = lines_of(f"{path}/results") or ([] if self.is_later_node else list(paths))
        """As the profile has them."""
        self.paths = [one.rstrip("/") for one in self.results]
        self.places = {os.path.realpath(os.path.join(self.tree, one)): one for one in self.paths}
        """Where these really are: a shared folder is a link."""
        self._read: dict[str, tuple[object, Record | None]] = {}
        self.let_go = read_let_go(f"{path}/{LET_GO}")
        """Paths and patterns of results that the user lets go of."""
        self.met: set[str] = set()
        """Those of them that any result has met."""

    @property
    def begun(self) -> int:
        """When it began, in nanoseconds; 0 if it has not."""
        pid = RunFolder(self.path).stat("pid")
        return pid.st_mtime_ns if pid else 0

    @property
    def is_over(self) -> bool:
        """Whether it has begun and is over, also if it died."""
        state = RunFolder(self.path).state()
        return state == DIED or state.startswith(FINISHED)

    def before(self) -> Files | None:
        """Return what was there when it began; None if that is unknown."""
        record = self._record(BEFORE)
        return record.files if record else None

    def found(self, path: str, now: FileState | None) -> bool:
        """Whether what is now at a path, and no pull brings, was there when it began."""
        before = (self.before() or Files()).left.get(path)
        return bool(before and now and is_same(before, now))

    def made(self) -> Files | None:
        """Return what it made; None if that was not recorded yet."""
        record = self._record(MADE)
        return record.files if record else None

    def made_since(self) -> float:
        """Return for how many seconds that is recorded, by a clock that nobody sets; 0 if the box
        was started since."""
        record = self._record(MADE)
        boot, now = _clock()
        return now - record.at if record and record.boot == boot else 0.0

    def _record(self, name: str) -> Record | None:
        if not (found := RunFolder(self.path).stat(name)):
            return None
        state = (found.st_ino, found.st_size, found.st_mtime_ns)
        if self._read.get(name, (None, None))[0] != state:
            self._read[name] = state, read_record(f"{self.path}/{name}")
        return self._read[name][1]

    def is_home(self, rest: Files | None = None) -> bool:
        """Return whether a verified pull brought all that it made; or `rest`, which is left of
        it."""
        made = self.made()
        if made is None:
            return False
        files = self.wanted(made) if rest is None else rest
        return lines_of(f"{self.path}/{HOME}") == [digest_of(files)]

    def wanted(self, files: Files) -> Files:
        """Return those of its results that the user does not let go of."""
        if not self.let_go:
            return files
        links = files.links
        return files.only(
            lambda path: not (self.lets_go(path) or self.lets_go(links.get(path, path)))
        )

    def lets_go(self, path: str) -> bool:
        for one in self.let_go:
            if is_meant(one, path):
                self.met.add(one)
                return True
        return False

    def note_let_go(self, patterns: list[str]) -> None:
        """Note what the user lets go of, instead of what they did before. Raises OSError."""
        file = f"{self.path}/{LET_GO}"
        write_whole(file, json.dumps(patterns))
        self.let_go = read_let_go(file)

    def with_results(self, paths: list[str]) -> RunResults:
        """Note that these are results of it too, and what it was given if it noted none; return it
        with them. Raises OSError."""
        file = f"{self.path}/results"
        names = [name for name in map(os.path.normpath, paths) if _is_inside(name)]
        new = [name for name in names if not any(is_meant(one, name) for one in self.results)]
        noted_before, lines = lines_of(file), [*self.results, *new]
        if noted_before == lines:
            return self
        write_whole(file, "".join(f"{one}\n" for one in lines))
        noted = RunResults(self.path, self.tree)
        is_of_nothing = not (noted_before or self.before() or self.made())
        if is_of_nothing and not Neighbours(noted).later:
            noted._record_by_time()
        settle(noted, at_last=True)
        return noted

    def _record_by_time(self) -> None:
        """Record as there before it what is older than it: nobody looked when it began."""
        began, there = self.begun, self.find()
        older = there.only(lambda path: max(there[path].modified, there[path].changed) < began)
        for name in (BEFORE, MADE):
            with suppress(OSError):
                os.unlink(f"{self.path}/{name}")
        write_files(f"{self.path}/{BEFORE}", older)

    def given_up(self) -> str:
        """Return the run that may overwrite its results; "" if none may."""
        return "".join(lines_of(f"{self.path}/{GIVEN_UP}")[:1])

    def kept_bytes(self) -> int:
        """Return the bytes of its copies."""
        made = self.made() or Files()
        return sum(state.size for path, state in made.items() if self.has_kept(path, state))

    def has_kept(self, path: str, state: FileState) -> bool:
        """Return whether there is a copy of this result, as it was when its run ended."""
        try:
            found = os.stat(f"{self.path}/{KEPT}/{path}", follow_symlinks=False)
        except OSError:
            return False
        return (found.st_size, found.st_mtime_ns) == (state.size, state.modified)

    def state_in_place(self, path: str) -> FileState | None:
        """Return the state of the plain file, or its own link, that is at a path of its results."""
        try:
            found = os.stat(os.path.join(self.tree, path), follow_symlinks=path in self.paths)
        except OSError:
            return None
        if stat.S_ISLNK(found.st_mode):
            to = (self.made() or Files()).links.get(path)
            return link_state(found, to) if to else None
        return state_of(found) if stat.S_ISREG(found.st_mode) else None

    def place_of(self, path: str) -> str:
        """Return where a result really is, links in the results' own path followed."""
        for place, name in self.places.items():
            if path == name or path.startswith(f"{name}/"):
                return place + path[len(name) :]
        return os.path.join(self.tree, path)

    def covers(self, place: str) -> bool:
        """Return whether a place is one of its results, or below one."""
        return _path_in(self, place) is not None

    def overlaps(self, other: RunResults) -> bool:
        """Return whether the two have results in the same place, or the same tree."""
        return (
            self.tree == other.tree
            or any(map(self.covers, other.places))
            or any(map(other.covers, self.places))
        )

    def find(self, between: Callable[[], None] = lambda: None) -> Files:
        """Return what lies at its results now."""
        finder = Finder(self.tree, self.paths, between)
        finder.find()
        return finder.files


def runs_of(home: str) -> Iterator[RunResults]:
    """Return all runs of a box that have begun."""
    return (RunResults(run.path) for run in runs_below(f"{home}/runs") if run.has("pid"))


class Neighbours:
    """The other runs with results in the same places as one run."""

    def __init__(self, run: RunResults) -> None:
        home = os.path.dirname(os.path.dirname(os.path.dirname(run.path)))
        others = (one for one in runs_of(home) if one.path != run.path)
        self.runs = sorted((one for one in others if run.overlaps(one)), key=lambda one: -one.begun)
        begun = run.begun
        self.later = [one for one in self.runs if begun and one.begun > begun]
        """Those that began after the run, the newest first."""
        self._records: list[tuple[RunResults, Files | None, Files | None]] = []

    def owner(self, place: str, state: FileState) -> RunResults | None:
        """Return which of them has the file that is now at a place; None if none has."""
        if not self._records:  # once for all files
            self._records = [(one, one.made(), one.before()) for one in self.runs]
        for one, rows, before in self._records:
            path = _path_in(one, place)
            if path is None:
                continue
            if rows is not None:
                if path in rows and is_same(rows[path], state):
                    return one
            elif before is not None and not (path in before and is_same(before[path], state)):
                return one  # it is alive, and has changed this
        return None


class OwnResults:
    """Looks at one run's results repeatedly: which are there, complete, kept, lost."""

    def __init__(self, run: RunResults, stood_s: float) -> None:
        self.run, self._stood_s = run, stood_s
        self._rows = Files()
        self._kinds: dict[str, str] = {}
        self._lost: list[LostFile] = []
        self._strays: list[LeftOut] = []
        self._later: list[RunResults] = []
        self._left: dict[str, FileState] = {}
        self._live = False
        self.looking = CompleteFiles(run.tree, run.paths, stood_s=stood_s)
        self.looking.choose, self.looking.skips = self._choose, run.lets_go

    def look(self, *, live: bool) -> OwnLook:
        """Return what is there now; `live`: the run may still write. One that never began has none
        of what is there."""
        if not self.run.begun:
            return OwnLook([], [], [])
        self._live = live
        self.run.let_go = read_let_go(f"{self.run.path}/{LET_GO}")
        look = self.looking.look(live=live)
        files = [OwnFile(one, self._kinds[one.path]) for one in look.files]
        kept = [path for path, kind in self._kinds.items() if kind == "kept"]
        together = checkpoints(self._rows, live=False) if kept else {}
        for path in kept:
            checkpoint = together[path][0] if path in together else ""
            to = self._rows.links.get(path, "")
            files.append(OwnFile(ResultFile(path, self._rows[path], "", checkpoint, to), "kept"))
        left = [one for one in look.left_out if one.why == "missing" or self._is_its_own(one.path)]
        return OwnLook(files, [*left, *self._strays], self._lost)

    def _is_its_own(self, path: str) -> bool:
        """Whether the run made what no pull brings, or changed it, and no later one did."""
        now, place = self._left.get(path), self.run.place_of(path)
        theirs = [(one, its) for one in self._later if (its := _path_in(one, place)) is not None]
        return not self.run.found(path, now) and all(one.found(its, now) for one, its in theirs)

    def _choose(self, files: Files) -> Files:
        """Return which files in place are the run's, or come with it."""
        run, near = self.run, Neighbours(self.run)
        for other in reversed(near.runs):
            settle(other)
        self._later = later = near.later
        self._left = files.left
        self._rows = rows = run.wanted(made_by(run, files, near, live=self._live))
        self._kinds, self._lost, self._strays = {}, [], []
        self.looking.stood = rows if run.made_since() >= self._stood_s else {}
        keeps = os.path.isdir(f"{run.path}/{KEPT}")
        for path, state in rows.items():
            if keeps and run.has_kept(path, state):
                self._kinds[path] = "kept"
            elif path in files and is_unchanged(run, path, state, files[path], later):
                self._kinds[path] = "own"
            else:
                self._lost.append(_lost(run, path, state, files.get(path), near))
        changed = {one.path for one in self._lost if one.why == "changed"}
        after = {
            path
            for path, state in files.items()
            if not (
                self._live or path in rows or any(one.covers(run.place_of(path)) for one in later)
            )
            and not near.owner(run.place_of(path), state)
        }
        placed = as_placed(run, changed | after)
        self._lost = [
            one._replace(why="gone") if one.path in placed & changed else one for one in self._lost
        ]
        if after:
            after -= placed
            there = files.only(lambda path: path in self._kinds or path in after).without_strays()
            self._strays = [LeftOut(path, "stray") for path in sorted(after - there.keys())]
            self._kinds.update(dict.fromkeys(after & there.keys(), "after"))
        return files.only(lambda path: self._kinds.get(path, "kept") != "kept")


def as_placed(run: RunResults, paths: Collection[str]) -> set[str]:
    """Return the tracked ones of these paths that are as they were placed: home has them."""
    home = os.path.dirname(os.path.dirname(os.path.dirname(run.path)))
    number = run.tree.rpartition("@")[2]
    is_beside = os.path.isdir(f"{home}/steps/{run.key}/beside/{number}")
    placed = BoxTree(home, run.key, run.tree, number if is_beside else "1").placed
    if not paths or not os.path.isdir(placed.folder):
        return set()
    look = ("diff", "--name-only", "--no-ext-diff", "--ignore-submodules", "-z")
    try:
        tracked = {*placed.paths("ls-files", "-z", "--", *run.paths)}
        changed = placed.paths(*look, "--", *run.paths)
    except OSError:
        return set()
    return tracked.difference(changed).intersection(paths)


def made_by(run: RunResults, files: Files, near: Neighbours, *, live: bool) -> Files:
    """Return what a run has made, of what lies at its results; record it if the run is over."""
    made = run.made()
    if made is not None:
        return made
    before = run.before()
    if before is None:
        if near.later or not run.begun:
            return Files()
        return files.only(
            lambda path: not near.owner(run.place_of(path), files[path])
        ).without_strays()
    made = files.only(
        lambda path: not (path in before and is_same(before[path], files[path]))
    ).without_strays()
    made.left = {path: now for path, now in files.left.items() if not run.found(path, now)}
    if not live and run.is_over and not held_files({state[:2] for state in made.values()}):
        write_files(f"{run.path}/{MADE}", made)
    return made


def settle(run: RunResults, *, at_last: bool = False) -> bool:
    """Record what a run made, if it is over; return whether that is known from now on.

    `at_last`: another run is about to begin there, so that later it could not be told any more.
    """
    if os.path.exists(f"{run.path}/{MADE}") and run.made() is not None:
        return True
    if not run.is_over or not (at_last or run.before() is not None):
        return False
    made = made_by(run, run.find(), Neighbours(run), live=at_last)
    return write_files(f"{run.path}/{MADE}", made) if at_last else run.made() is not None


def is_unchanged(
    run: RunResults, path: str, made: FileState, now: FileState, later: Iterable[RunResults]
) -> bool:
    """Return whether a file is what the run made.

    Its inode and ctime may have changed: by chmod, or since the disk was copied. Then no later run
    must have written it.
    """
    if is_same(made, now):
        return True
    if (made.size, made.modified) != (now.size, now.modified):
        return False
    place = run.place_of(path)
    for other in later:
        there, theirs = _path_in(other, place), other.made()
        if there is not None and (theirs is None or there in theirs):
            return False
    return True


def is_same(one: FileState, other: FileState) -> bool:
    """Return whether nobody has touched a file in between. The device's number may change."""
    return one[1:] == other[1:]


def digest_of(files: Mapping[str, tuple[int, ...]]) -> str:
    """Return one digest of paths, sizes and times, which a copy has too, of such a `FileState`."""
    import hashlib  # slow to import, and no run that begins waits for it

    rows = [[path, *files[path][2:4]] for path in sorted(files)]
    return hashlib.sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()


def read_record(file: str) -> Record | None:
    """Read a record; None if there is none, or it is damaged."""
    try:
        with open(file, encoding="ascii") as text:
            document = json.load(text)
        boot, at = document.get("at", ("", 0))  # earlier versions noted none
        files = _states(document["files"])
        files.left = {**_states(document.get("left", {}))}
        files.links = {str(path): str(to) for path, to in document.get("links", {}).items()}
        return Record(files, str(boot), float(at))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _states(rows: dict[str, list[int]]) -> Files:
    return Files((str(path), FileState(*map(int, state))) for path, state in rows.items())


def read_let_go(file: str) -> list[str]:
    """Read which results the user lets go of; nothing if there is no record, or it is damaged."""
    try:
        with open(file, encoding="ascii") as text:
            return [str(one) for one in json.load(text)]
    except (OSError, ValueError, TypeError):
        return []


def is_meant(pattern: str, path: str) -> bool:
    """Return whether a path, or a pattern as of a shell, means this path or a folder above it."""
    return is_named(pattern, path) or _matches(os.path.normpath(pattern), path)


def is_named(one: str, path: str) -> bool:
    """Return whether it is this path, or a folder above it."""
    name = os.path.normpath(one)
    return path == name or path.startswith(f"{name}/")


def _is_inside(path: str) -> bool:
    return path not in (".", "..") and not path.startswith(("/", "../")) and "\n" not in path


def _matches(pattern: str, path: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}/*")


def write_files(file: str, files: Mapping[str, FileState]) -> bool:
    """Write a record, once and for all: what another process wrote meanwhile stays.

    Return whether there is one now: the disk may be full.
    """
    new = f"{file}.{os.getpid()}"
    try:
        with open(new, "w", encoding="ascii") as out:
            beside = vars(files) if isinstance(files, Files) else {}
            document = {"v": VERSION, "at": _clock(), "files": files, **beside}
            json.dump(document, out, separators=(",", ":"))
        if read_record(file) is None:
            os.replace(new, file)
        else:
            os.unlink(new)
    except OSError:
        with suppress(OSError):
            os.unlink(new)
    return read_record(file) is not None


def _clock() -> tuple[str, float]:
    """Return which boot of this machine it is, and the seconds since, as every process has them."""
    return boot_id(), time.monotonic()


def _path_in(run: RunResults, place: str) -> str | None:
    """Return the path by which a run has a place among its results; None if it has not."""
    for own, name in run.places.items():
        if place == own or place.startswith(f"{own}/"):
            return name + place[len(own) :]
    return None


def _lost(
    run: RunResults, path: str, state: FileState, now: FileState | None, near: Neighbours
) -> LostFile:
    if now is None:
        return LostFile(path, state, "gone", "")
    place = run.place_of(path)
    covering = (one for one in near.later if one.covers(place))
    owner = near.owner(place, now) or next(covering, None)
    return LostFile(path, state, "by" if owner else "changed", owner.name if owner else "")
