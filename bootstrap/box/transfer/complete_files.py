"""Find out which result files of a box are complete, by repeated looks; for Python 3.8.

A file is complete when no process has it open for writing, and it has been unchanged for `STOOD_S`
seconds on the monotonic clock. A checkpoint of several files is complete when all of them are and,
while its run lives, none of them is still to come.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .held_files import held_files

STOOD_S = 2.0
MOST_FILES = 250000
"""Most files that are listed; the rest is reported as left out."""
_FINE_NS = 10**6
"""If times aren't multiples of this (nanoseconds), nearly every write gets a different one."""

_NUMBERED = r"(?:checkpoint|ckpt|global_step|step|epoch|iter|iteration)[-_.=]*[0-9]+"
_FOLDER = re.compile(rf"(?:{_NUMBERED}[-_.]?)+(?:ckpt|hf)?|.+\.ckpt", re.IGNORECASE)
"""A folder with this name is one checkpoint: its files belong together."""
_SHARD = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})(\..*)")
_DISTRIBUTED, _ITS_LAST = ".distcp", ".metadata"
"""PyTorch's distributed checkpoint: its parts, and the file that is written last."""


class FileState(NamedTuple):
    """Identifies an unchanged file. `modified` and `changed`: mtime and ctime in nanoseconds."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int


class ResultFile(NamedTuple):
    """A plain file below the results; `path` is relative to the tree."""

    path: str
    state: FileState
    why: str
    """Why it isn't complete: young, held, checkpoint (another file of it isn't); "" if it is.

    closed: it is young, but its run is over, nobody has it open for writing, and a later write
    would show in its times. It may be read ahead, and counts if it is found complete afterwards.
    """
    checkpoint: str
    """The same word for all files of one checkpoint; "" for a file outside of one."""


class LeftOut(NamedTuple):
    """A path that can't be transferred, and why: see `Finder`."""

    path: str
    why: str


class Look(NamedTuple):
    """What was there at one moment."""

    files: list[ResultFile]
    left_out: list[LeftOut]


class Finder:
    """Finds the files below the results of one tree, and what else is there.

    `left_out` says why: link (it leads to results, which are taken anyway), outside (a link that
    leads elsewhere, or nowhere), special (a device, socket or pipe), unreadable, name (not UTF-8),
    missing (no such result), many.
    """

    def __init__(
        self, tree: str, results: Iterable[str], between: Callable[[], None] = lambda: None
    ) -> None:
        """`between` is called at each file."""
        self.tree, self._between = tree, between
        self.results = [path.rstrip("/") for path in results]
        self.files: dict[str, FileState] = {}
        self.left_out: list[LeftOut] = []
        self._places = [os.path.realpath(os.path.join(tree, path)) for path in self.results]

    def find(self) -> None:
        """Fill `files` and `left_out`."""
        for path in self.results:
            try:
                # If the profile's own path is a link, e.g. a shared folder, it is followed.
                found = os.stat(os.path.join(self.tree, path))
            except FileNotFoundError:
                self._leave(path, "missing")
            except OSError:
                self._leave(path, "unreadable")
            else:
                self._take(path, found)

    def _take(self, path: str, found: os.stat_result) -> None:
        if stat.S_ISDIR(found.st_mode):
            self._walk(path)
        elif not stat.S_ISREG(found.st_mode):
            self._leave(path, "special")
        elif len(self.files) >= MOST_FILES:
            if not self.left_out or self.left_out[-1].why != "many":
                self._leave(path, "many")
        elif not os.access(os.path.join(self.tree, path), os.R_OK):
            self._leave(path, "unreadable")
        else:
            self.files[path] = state_of(found)

    def _walk(self, folder: str) -> None:
        try:
            with os.scandir(os.path.join(self.tree, folder)) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            self._leave(folder, "unreadable")
            return
        for entry in inside:
            self._between()
            path = f"{folder}/{entry.name}"
            if not _is_text(path):
                self._leave(path.encode("utf-8", "replace").decode(), "name")
            elif entry.is_symlink():
                self._leave(path, "link" if self._is_inside(path) else "outside")
            else:
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                except OSError:
                    self._leave(path, "unreadable")
                    continue
                self._take(path, found)

    def _is_inside(self, link: str) -> bool:
        place = os.path.realpath(os.path.join(self.tree, link))
        inside = any(f"{place}/".startswith(f"{one}/") for one in self._places)
        return inside and os.path.exists(place)

    def _leave(self, path: str, why: str) -> None:
        if len(self.left_out) < MOST_FILES:
            self.left_out.append(LeftOut(path, why))


class CompleteFiles:
    """Looks at the results of one tree repeatedly, and says which of them are complete."""

    def __init__(
        self,
        tree: str,
        results: Iterable[str],
        *,
        stood_s: float = STOOD_S,
        clock: Callable[[], float] = time.monotonic,
        proc: str = "/proc",
    ) -> None:
        self._tree, self._results, self._stood_s = tree, list(results), stood_s
        self._clock, self._proc = clock, proc
        self.between: Callable[[], None] = lambda: None
        """Called at each file that is looked at."""
        self._since: dict[str, tuple[FileState, float]] = {}
        self._settled: dict[str, FileState] = {}
        """Files found to be complete on their own; they still are if they are opened again."""

    def note(self) -> Finder:
        """Note what is there, and since when it is unchanged."""
        finder = Finder(self._tree, self._results, self.between)
        finder.find()
        now, before = self._clock(), self._since
        self._since = {}
        for path, state in finder.files.items():
            last = before.get(path)
            self._since[path] = last if last and last[0] == state else (state, now)
        return finder

    def look(self, *, live: bool) -> Look:
        """Return what is there now; `live`: its run may still write."""
        finder = self.note()
        why = self._judge(finder.files, self._clock(), live=live)
        together = checkpoints(finder.files, live=live)
        broken = {one for path, (one, whole) in together.items() if why[path] or not whole}
        files = []
        for path, state in finder.files.items():
            checkpoint = together[path][0] if path in together else ""
            reason = why[path] or ("checkpoint" if checkpoint in broken else "")
            files.append(ResultFile(path, state, reason, checkpoint))
        return Look(files, finder.left_out)

    def _judge(self, files: dict[str, FileState], now: float, *, live: bool) -> dict[str, str]:
        why = {}
        asked = {}
        for path, state in files.items():
            if self._settled.get(path) == state:
                why[path] = ""
            elif now - self._since[path][1] >= self._stood_s:
                asked[path] = state
            else:
                why[path] = "young"
                if not live and state.changed % _FINE_NS:
                    asked[path] = state
        held = held_files({state[:2] for state in asked.values()}, self._proc) if asked else set()
        for path, state in asked.items():
            if path not in why:
                is_whole = live or self._is_still(path, state)
                why[path] = "held" if state[:2] in held else "" if is_whole else "young"
            elif state[:2] not in held:
                why[path] = "closed"
        self._settled = {path: state for path, state in files.items() if not why[path]}
        return why

    def _is_still(self, path: str, state: FileState) -> bool:
        """Return whether a file is still the same once it is opened.

        Only that may show another machine's write to a shared disk; a read ahead isn't repeated."""
        try:
            file = os.open(os.path.join(self._tree, path), os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return True  # its reader gets the error
        try:
            return state_of(os.fstat(file))[2:] == state[2:]
        finally:
            os.close(file)


def state_of(found: os.stat_result) -> FileState:
    """Return the values that identify an unchanged file."""
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return FileState(found.st_dev, found.st_ino, found.st_size, *times)


def checkpoints(paths: Iterable[str], *, live: bool) -> dict[str, tuple[str, bool]]:
    """Map each file of a multi-file checkpoint to that checkpoint, and to whether it has all parts.

    Once its run is over no more parts come, so those that are there count as all.
    """
    paths = list(paths)
    folders = {os.path.dirname(path) for path in paths if path.endswith(_DISTRIBUTED)}
    found: dict[str, list[str]] = {}
    for path in paths:
        one = _checkpoint_of(path, folders)
        if one:
            found.setdefault(one, []).append(path)
    return {
        path: (one, not live or _has_all_parts(files))
        for one, files in found.items()
        for path in files
    }


def _checkpoint_of(path: str, folders: set[str]) -> str:
    parts = path.split("/")[:-1]
    for end, name in enumerate(parts, 1):
        folder = "/".join(parts[:end])
        if _FOLDER.fullmatch(name) or folder in folders:
            return f"{folder}/"
    shard = _SHARD.fullmatch(path)
    if shard:
        return f"{shard[1]}{shard[4]}"
    # The index next to such shards: model.safetensors.index.json
    return path[: -len(".index.json")] if path.endswith(".index.json") else ""


def _has_all_parts(files: list[str]) -> bool:
    shards: dict[tuple[str, str, str], set[str]] = {}
    for path in files:
        shard = _SHARD.fullmatch(path)
        if shard:
            shards.setdefault((shard[1], shard[3], shard[4]), set()).add(shard[2])
    distributed = {os.path.dirname(path) for path in files if path.endswith(_DISTRIBUTED)}
    return all(len(parts) >= int(of) for (_, of, _), parts in shards.items()) and all(
        f"{folder}/{_ITS_LAST}" in files for folder in distributed
    )


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
