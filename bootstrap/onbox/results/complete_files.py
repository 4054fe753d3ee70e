"""Find out which result files of a box are complete, by repeated looks; for Python 3.8.

A file is complete when no process has it open for writing, and it has been unchanged for `STOOD_S`
seconds on the monotonic clock, or since the record that was made when its run ended. One that is
written anew all the time is so once a minute, whenever nobody has it open. A checkpoint of several
files is complete when all of them are and, while its run lives, none of them is still
to come.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Dict, NamedTuple  # noqa: UP035 - a base class, which 3.8 has by this name alone

from ..processes import held_files

STOOD_S = 2.0
MOST_FILES = 250000
"""Most files that are listed; the rest is reported as left out."""
_FINE_NS = 10**6
"""If times aren't multiples of this (nanoseconds), nearly every write gets a different one."""

_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_NUMBERED = r"(?:checkpoint|ckpt|global_step|step|epoch|iter|iteration)[-_.=]*[0-9]+"
_FOLDER = re.compile(rf"(?:{_NUMBERED}[-_.]?)+(?:ckpt|hf)?|.+\.ckpt", re.IGNORECASE)
"""A folder with this name is one checkpoint: its files belong together."""
_SHARD = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})(\..*)")
_DISTRIBUTED, _ITS_LAST = ".distcp", ".metadata"
"""PyTorch's distributed checkpoint: its parts, and the file that is written last."""
_LASTS = ("/.metadata", "/trainer_state.json")
"""Files that are written last, of any checkpoint in a folder."""
_NUMBER = re.compile("[0-9]+")
_ALL = 0o444
"""Everybody may read it."""
_SIBLINGS = 3
"""How many earlier checkpoints in folders of such a name say which files belong to one."""
_LONG_S = 60.0
"""Seconds after which one that stands is complete though the earlier ones have more files, and a
single file though it never stands."""
_POINTER = re.compile(r"(?:.*/)?(?:latest|last|best|newest|checkpoint)[^/]*", re.IGNORECASE)
SHORT = 256
"""Bytes of the longest file that may be such a pointer: it names a checkpoint beside it."""
_WORD = re.compile(r"""[^\s"'/:,{}\[\]]+""")


class FileState(NamedTuple):
    """Identifies an unchanged file. `modified` and `changed`: mtime and ctime in nanoseconds.

    A link's size is the length of the path to which it leads, below the tree."""

    device: int
    inode: int
    size: int
    modified: int
    changed: int


class Files(Dict[str, FileState]):  # noqa: UP006 - as above
    """Files and links by path in the tree."""

    def __init__(self, rows: Iterable[tuple[str, FileState]] = ()) -> None:
        super().__init__(rows)
        self.links: dict[str, str] = {}
        """Those that are links, and where each leads: to a file, or a folder with files."""
        self.left: dict[str, FileState] = {}
        """What lies beside them and is left out, folders excepted."""

    def only(self, keeps: Callable[[str], bool]) -> Files:
        found = Files((path, state) for path, state in self.items() if keeps(path))
        found.links = {path: to for path, to in self.links.items() if path in found}
        return found

    def without_strays(self) -> Files:
        """Return them without the links that lead to none of them."""
        if not self.links:
            return self
        there = with_folders(path for path in self if path not in self.links)
        return self.only(lambda path: self.links.get(path, path) in there)


def with_folders(paths: Iterable[str]) -> set[str]:
    """Return these paths and all folders above them."""
    found: set[str] = set()
    for path in paths:
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]  # noqa: PLW2901 - the one above
    return found


def link_digest(to: str) -> str:
    """Return the digest by which a link is known that leads there. No file of a name has it: one
    that holds only `step-5` is not the link to that."""
    import hashlib  # slow to import, and no run that begins waits for it

    return hashlib.sha256(b"link\0" + to.encode("utf-8", "surrogateescape")).hexdigest()


class ResultFile(NamedTuple):
    """A plain file or a link below the results; `path` is relative to the tree."""

    path: str
    state: FileState
    why: str
    """Why it isn't complete: young, held, checkpoint (another file of it isn't); "" if it is.

    closed: it is young, but its run is over, nobody has it open for writing, and a later write
    would show in its times. It may be read ahead, and counts if it is found complete afterwards.
    """
    checkpoint: str
    """The same word for all files of one checkpoint, and those that name it: FOLDER/ if it is, or
    has, a path of its own; "" for a file outside of one."""
    to: str = ""
    """To which of the results a link leads, or to which folder of them."""

    @property
    def is_pointer(self) -> bool:
        """Whether it names the checkpoint, and is of no use before that is there."""
        return self.checkpoint.endswith("/") and not f"{self.path}/".startswith(self.checkpoint)


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

    `left_out` says why: outside (a link that leads out of the results), dead (one that leads
    nowhere), stray (to results, but none of these), special (a device, socket or pipe), unreadable,
    name (not UTF-8), missing (no such result), many.
    """

    def __init__(
        self,
        tree: str,
        results: Iterable[str],
        between: Callable[[], None] = lambda: None,
        skips: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """`between` is called at each file; `skips`: with a path, to which nobody is to look."""
        self.tree, self._between, self._skips = tree, between, skips
        self.results = [path.rstrip("/") for path in results]
        self.files = Files()
        self.left_out: list[LeftOut] = []
        self._places = {os.path.realpath(os.path.join(tree, one)): one for one in self.results}

    def find(self) -> None:
        """Fill `files` and `left_out`."""
        for path in self.results:
            if self._skips(path):
                continue
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
        elif stat.S_ISLNK(found.st_mode):
            self._take_link(path, found)
        elif not stat.S_ISREG(found.st_mode):
            self._leave(path, "special", found)
        elif self._is_full(path):
            pass
        elif not (_ALL & found.st_mode == _ALL or os.access(f"{self.tree}/{path}", os.R_OK)):
            self._leave(path, "unreadable", found)
        else:
            self.files[path] = state_of(found)

    def _walk(self, folder: str) -> None:
        try:
            place = os.open(os.path.join(self.tree, folder), os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            self._leave(folder, "unreadable")
            return
        try:
            self._enter(place, folder)
        finally:
            os.close(place)

    def _enter(self, place: int, folder: str) -> None:
        """Take all that is in an open folder: so its path is looked up once, not for each file."""
        try:
            with os.scandir(place) as entries:
                inside = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            self._leave(folder, "unreadable")
            return
        for entry in inside:
            self._between()
            path = f"{folder}/{entry.name}"
            if self._skips(path):
                continue
            try:
                found = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError:
                self._leave(path, "unreadable")
                continue
            if not is_text(path):
                self._leave(path, "name", found)
            else:
                self._take(path, found)

    def _is_full(self, path: str) -> bool:
        if len(self.files) < MOST_FILES:
            return False
        if not self.left_out or self.left_out[-1].why != "many":
            self._leave(path, "many")
        return True

    def _take_link(self, link: str, found: os.stat_result) -> None:
        place = os.path.realpath(os.path.join(self.tree, link))
        try:
            os.stat(place)
        except OSError as error:
            # If it may not be seen, something may be there.
            self._leave(link, "dead" if error.errno in _NOWHERE else "outside", found)
            return
        inside = [one for one in self._places if f"{place}/".startswith(f"{one}/")]
        to = self._places[inside[0]] + place[len(inside[0]) :] if inside else ""
        if not to:
            self._leave(link, "outside", found)
        elif not is_text(to):
            self._leave(link, "name", found)
        elif self._skips(to):
            self._leave(link, "stray")
        elif not self._is_full(link):
            self.files.links[link] = to
            self.files[link] = link_state(found, to)

    def _leave(self, path: str, why: str, found: os.stat_result | None = None) -> None:
        if len(self.left_out) < MOST_FILES:
            self.left_out.append(LeftOut(path, why))
            if found and not stat.S_ISDIR(found.st_mode):
                self.files.left[path] = state_of(found)


class CompleteFiles:
    """Looks at the results of one tree repeatedly, and says which of them are complete."""

    def __init__(
        self,
        tree: str,
        results: Iterable[str],
        *,
        stood_s: float = STOOD_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tree, self._results, self._stood_s = tree, list(results), stood_s
        self._clock = clock
        self.between: Callable[[], None] = lambda: None
        """Called at each file that is looked at."""
        self.choose: Callable[[Files], Files] = lambda files: files
        """Returns those of the files found that count."""
        self.skips: Callable[[str], bool] = lambda _: False
        """Whether nobody is to look at a path."""
        self.stood: Mapping[str, FileState] = {}
        """Files that a record shows to be unchanged for long enough, without another look."""
        self.reads_all = False
        """Whether each file is opened next anyway, to be read: its reader sees that it changed."""
        self._found: Mapping[str, FileState] = {}
        """All files of the last look, also those that don't count."""
        self._since: dict[str, tuple[FileState, float]] = {}
        self._restless: dict[str, float] = {}
        """Since when files were young at each look."""
        self._settled: dict[str, FileState] = {}
        """Files found to be complete on their own; they still are if they are opened again."""

    def note(self) -> Finder:
        """Note what is there, and since when it is unchanged."""
        finder = Finder(self._tree, self._results, self.between, self.skips)
        finder.find()
        self._found = finder.files
        finder.files = self.choose(finder.files)
        now, before = self._clock(), self._since
        self._since = {}
        for path, state in finder.files.items():
            last = before.get(path)
            self._since[path] = last if last and last[0] == state else (state, now)
        return finder

    def look(self, *, live: bool) -> Look:
        """Return what is there now; `live`: its run may still write."""
        finder = self.note()
        now = self._clock()
        stood = {path for path in finder.files if now - self._since[path][1] >= _LONG_S}
        together = checkpoints(finder.files, live=live, others=self._found, stood=stood)
        never_stand = {
            path
            for path, since in self._restless.items()
            if live and now - since >= _LONG_S and path not in together
        }
        why = self._judge(finder.files, now, never_stand, live=live)
        links = finder.files.links
        short = [path for path, state in finder.files.items() if state.size <= SHORT]
        whole = dict(together.values())
        for path, to in links.items():  # what leads to a checkpoint comes with it, as its pointers
            if path not in together and (to in together or f"{to}/" in whole):
                together[path] = together.get(to) or (f"{to}/", whole[f"{to}/"])
        for path, one in pointers(short, finder.files, together, self._text_of).items():
            if one[:-1] in finder.files:
                together[one[:-1]] = together[path] = (one, True)
            elif one in whole:
                together[path] = (one, whole[one])
        broken = {one for path, (one, whole) in together.items() if why[path] or not whole}
        files = []
        for path, state in finder.files.items():
            checkpoint = together[path][0] if path in together else ""
            reason = why[path] or ("checkpoint" if checkpoint in broken else "")
            files.append(ResultFile(path, state, reason, checkpoint, links.get(path, "")))
        return Look(files, finder.left_out)

    def _text_of(self, path: str) -> str:
        place = os.path.join(self._tree, path)
        with suppress(OSError), open(place, "rb", opener=_open_plain) as opened:
            return opened.read(SHORT).decode("utf-8", "replace")
        return ""

    def _judge(
        self, files: dict[str, FileState], now: float, never_stand: Container[str], *, live: bool
    ) -> dict[str, str]:
        why = {}
        asked = {}
        for path, state in files.items():
            if self._settled.get(path) == state:
                why[path] = ""
            elif (
                now - self._since[path][1] >= self._stood_s
                or self.stood.get(path) == state
                or path in never_stand
            ):
                asked[path] = state
            else:
                why[path] = "young"
                if not live and state.changed % _FINE_NS:
                    asked[path] = state
        held = held_files({state[:2] for state in asked.values()}) if asked else set()
        for path, state in asked.items():
            if path not in why:
                is_whole = live or self.reads_all or self._is_still(path, state)
                why[path] = "held" if state[:2] in held else "" if is_whole else "young"
            elif state[:2] not in held:
                why[path] = "closed"
        self._settled = {path: state for path, state in files.items() if not why[path]}
        young = (path for path, reason in why.items() if reason == "young")
        self._restless = {path: self._restless.get(path, now) for path in young}
        return why

    def _is_still(self, path: str, state: FileState) -> bool:
        """Return whether a file is still the same once it is opened.

        Only that may show another machine's write to a shared disk; a read ahead isn't repeated."""
        try:
            file = _open_plain(os.path.join(self._tree, path), os.O_RDONLY)
        except OSError:
            return True  # its reader gets the error; a link has no content
        try:
            return state_of(os.fstat(file))[2:] == state[2:]
        finally:
            os.close(file)


def _open_plain(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def link_state(found: os.stat_result, to: str) -> FileState:
    return state_of(found)._replace(size=len(to.encode("utf-8", "surrogateescape")))


def state_of(found: os.stat_result) -> FileState:
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return FileState(found.st_dev, found.st_ino, found.st_size, *times)


def checkpoints(
    paths: Iterable[str],
    *,
    live: bool,
    others: Iterable[str] = (),
    stood: Container[str] = (),
) -> dict[str, tuple[str, bool]]:
    """Map each file of a multi-file checkpoint to that checkpoint, and to whether it has all parts:
    all shards, and in a folder as many files of each name as earlier ones, unless all `stood` long.

    `others`: of earlier runs too. Once its run is over no more parts come, so those that are there
    count as all.
    """
    found = _by_checkpoint(paths)
    fewer = _fewer_than_before({**_by_checkpoint(others), **found}) if live else {}
    whole = {
        one: not live
        or (_has_all_parts(files) and (one not in fewer or all(path in stood for path in files)))
        for one, files in found.items()
    }
    return {path: (one, whole[one]) for one, files in found.items() for path in files}


def _by_checkpoint(paths: Iterable[str]) -> dict[str, list[str]]:
    paths = list(paths)
    folders = _distributed(paths)
    found: dict[str, list[str]] = {}
    above = lru_cache(10000)(lambda folder: _checkpoint_above(folder, folders))
    for path in paths:
        one = above(path[: path.rfind("/") + 1]) or _checkpoint_beside(path)
        if one:
            found.setdefault(one, []).append(path)
    return found


def _siblings(found: Iterable[str]) -> list[list[str]]:
    """Return the checkpoints whose folders have the same name but for its numbers, in order."""
    families: dict[str, list[tuple[list[int], str]]] = {}
    for one in found:
        parent, _, name = one[:-1].rpartition("/")
        if one.endswith("/") and _NUMBER.search(name):
            numbers = [int(number) for number in _NUMBER.findall(name)]
            families.setdefault(f"{parent}/{_NUMBER.sub('#', name)}", []).append((numbers, one))
    return [[one for _, one in sorted(family)] for family in families.values()]


def _fewer_than_before(found: dict[str, list[str]]) -> dict[str, tuple[str, int, int]]:
    """Map each checkpoint that has fewer files than those before it to the name of the first that
    it lacks, how many it has, and how many it should have.

    Numbers in names don't count. Of three before it, one may have more: somebody put it there.
    """
    lacking: dict[str, tuple[str, int, int]] = {}
    for family in _siblings(found):
        kinds = [
            Counter(_NUMBER.sub("#", path[len(one) :]) for path in found[one]) for one in family
        ]
        for at in range(1, len(family)):
            earlier = kinds[max(0, at - _SIBLINGS) : at]
            which = 1 if len(earlier) == _SIBLINGS else -1
            wanted = {
                kind: sorted(each[kind] for each in earlier)[which]
                for kind in sorted({kind for each in earlier for kind in each})
            }
            lacks = [kind for kind, count in wanted.items() if kinds[at][kind] < count]
            if lacks:
                there = sum(min(kinds[at][kind], count) for kind, count in wanted.items())
                lacking[family[at]] = lacks[0], there, sum(wanted.values())
    return lacking


def unproven(paths: Iterable[str]) -> set[str]:
    """Return the checkpoints in folders of which nothing says whether they have all their files:
    no other one of that name, and no file that is written last."""
    found = _by_checkpoint(paths)
    told = {one for family in _siblings(found) if len(family) > 1 for one in family}
    return {
        one
        for one, files in found.items()
        if one.endswith("/") and one not in told and not any(map(_is_last, files))
    }


def _is_last(path: str) -> bool:
    return path.endswith(_LASTS)


def pointers(
    short: Iterable[str],
    paths: Collection[str],
    together: Mapping[str, tuple[str, bool]],
    read: Callable[[str], str],
) -> dict[str, str]:
    """Map each short file that names a checkpoint beside it to that, with a slash at its end: a
    folder, a single file, or what is not there. `read` returns the text of one."""
    known: dict[str, dict[object, str]] = {}
    for one in {one for one, _ in together.values() if one.endswith("/")}:
        parent, slash, name = one[:-1].rpartition("/")
        numbers = tuple(map(int, _NUMBER.findall(name)))
        known.setdefault(parent + slash, {}).update(
            dict.fromkeys((f"{name}/", numbers), f"{name}/")
        )
    found = {}
    for path in short:
        if path not in together and _POINTER.fullmatch(path):
            parent = path[: path.rfind("/") + 1]
            for word in _WORD.findall(read(path)):
                name = _named_by(word, known.get(parent, {}))
                if name or (parent + word in paths and parent + word != path):
                    found[path] = parent + (name or f"{word}/")
                    break
    return found


def _named_by(word: str, folders: Mapping[object, str]) -> str:
    """Return which checkpoint's folder a word means, by its name or its number; "" if none."""
    if word.isdecimal():
        return folders.get((int(word),), f"{word}/") if folders else ""
    return f"{word}/" if f"{word}/" in folders or _FOLDER.fullmatch(word) else ""


def _checkpoint_above(folder: str, folders: Collection[str]) -> str:
    end = -1
    for name in folder.split("/")[:-1]:
        end += 1 + len(name)
        if _FOLDER.fullmatch(name) or folder[:end] in folders:
            return folder[: end + 1]
    return ""


def _checkpoint_beside(path: str) -> str:
    shard = _SHARD.fullmatch(path) if "-of-" in path else None
    if shard:
        return f"{shard[1]}{shard[4]}"
    # The index next to such shards: model.safetensors.index.json
    return path[: -len(".index.json")] if path.endswith(".index.json") else ""


def absent_parts(paths: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Map the first part that a checkpoint lacks to how many of its parts are there, and to how
    many it should have."""
    paths = set(paths)
    found: dict[str, tuple[int, int]] = {}
    for (stem, of, ending), parts in _shards(paths).items():
        first = 0 if "00000" in parts else 1
        numbers = (f"{number:05}" for number in range(first, first + int(of)))
        lacked = next((one for one in numbers if one not in parts), "")
        if lacked:
            found[f"{stem}-{lacked}-of-{of}{ending}"] = len(parts), int(of)
    for folder, files in _distributed(paths).items():
        if f"{folder}/{_ITS_LAST}" not in paths:
            found[f"{folder}/{_ITS_LAST}"] = len(files), len(files) + 1
    for one, (lacks, there, all_of_it) in _fewer_than_before(_by_checkpoint(paths)).items():
        found[one + lacks] = there, all_of_it
    return found


def _distributed(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return the parts of each distributed checkpoint, by its folder."""
    found: dict[str, list[str]] = {}
    for path in paths:
        if path.endswith(_DISTRIBUTED):
            found.setdefault(os.path.dirname(path), []).append(path)
    return found


def _shards(paths: Iterable[str]) -> dict[tuple[str, str, str], set[str]]:
    """Return the numbers of the parts that are there: by name, number of parts, and ending."""
    shards: dict[tuple[str, str, str], set[str]] = {}
    for path in paths:
        shard = _SHARD.fullmatch(path) if "-of-" in path else None
        if shard:
            shards.setdefault((shard[1], shard[3], shard[4]), set()).add(shard[2])
    return shards


def _has_all_parts(files: list[str]) -> bool:
    shards, there = _shards(files), set(files)
    return all(len(parts) >= int(of) for (_, of, _), parts in shards.items()) and all(
        f"{folder}/{_ITS_LAST}" in there for folder in _distributed(files)
    )


def is_text(path: str) -> bool:
    """Return whether its name is UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
