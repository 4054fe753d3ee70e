"""The local folder where a box's files land: each one atomically, never over the user's files.

Names that a box chose are checked before a file gets one here. Everything is opened from folder to
folder and never through a link, so that no name and no link leads out of it, even one that is made
at the same time. A file that is being received is counted, hashed, and named only when it is
complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import posixpath
import re
import stat
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from bootstrap.errors import BusyError, NotSafeError
from bootstrap.paths import open_regular
from bootstrap.repo.names import IGNORED, is_gits, shown

if TYPE_CHECKING:
    from typing_extensions import Self

PARTS = ".boxstrap-parts"
"""The folder of incomplete files, inside the folder that receives them."""
MANIFEST = "boxstrap-manifest.json"
"""The file in the folder of a run's results that lists what was pulled."""
RECORD = "boxstrap-run"
"""The folder beside a run's results with its log and record; with a number if that is another's."""
LONGEST_NAME = 255
"""Bytes of one part of a path: the limit of file systems."""
LONGEST_PATH = 2048
"""Bytes. Less than the limit for a whole path, since the folder has a path too."""
DEEPEST = 64

_UNSHOWN = {
    "Cc": "a control character",
    "Cs": "no UTF-8",
    "Zl": "a line break",
    "Zp": "a line break",
}
_PLAIN = re.compile(
    r"(?!boxstrap)(?:[\w=+-][\w=+.-]{0,90}/){0,20}[\w=+-][\w=+.-]{0,90}", re.A | re.I
)
"""Nearly all names: nothing of what is refused has this form."""
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_OWN = re.compile(rf"{re.escape(PARTS)}|{RECORD}(-[0-9]+)?")


def why_refused(path: str) -> str:
    """Return why no file here may have this name, or "". `path` is relative, with slashes."""
    if _PLAIN.fullmatch(path):
        return ""
    if not path or path.startswith("/"):
        return "is not a relative path"
    if len(path.encode("utf-8", "replace")) > LONGEST_PATH:
        return f"is longer than {LONGEST_PATH:,} bytes"
    parts = path.split("/")
    if len(parts) > DEEPEST:
        return f"lies more than {DEEPEST} folders deep"
    if _OWN.fullmatch(_spelled(parts[0])) or _spelled(path) == MANIFEST:
        return "is a name of boxstrap's own"
    return _why_wrong(path) or next(filter(None, map(_why_part_refused, parts)), "")


def _spelled(name: str) -> str:
    """Return the name as case-insensitive file systems compare it."""
    return IGNORED.sub("", name).casefold()


def _why_wrong(path: str) -> str:
    if path.isascii() and path.isprintable():
        return ""
    for character in path:
        if kind := _UNSHOWN.get(unicodedata.category(character)):
            return (
                f"has {kind} in its name" if kind != "no UTF-8" else "has a name that is no UTF-8"
            )
    if _DIRECTION.search(path):
        return "has a character in its name that changes the text direction"
    return ""


def _why_part_refused(part: str) -> str:
    if part in ("", ".", ".."):
        return "has an empty part, or . or .. as one"
    if len(part.encode()) > LONGEST_NAME:
        return f"has a name longer than {LONGEST_NAME} bytes"
    if is_gits(part):
        return "has a part that git would obey"
    return ""


def name_beside(path: str, run: str, number: int) -> str:
    """Return another name in the same folder, for a file of `run`: `model.from-train-2.pt`."""
    folder, slash, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    more = f".from-{run}" if number == 1 else f".from-{run}.{number}"
    room = LONGEST_NAME - len(f"{more}{dot}{ending}".encode())
    stem = stem.encode()[: max(1, room)].decode("utf-8", "ignore")
    return f"{folder}{slash}{stem}{more}{dot}{ending}"


def has_more_folders(paths: Iterable[str], most: int) -> bool:
    """Whether these are in more than `most` folders: each takes room that no size counts."""
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
        if len(found) > most:
            return True
    return False


_PIECE = 1 << 20
_SYNCED = 1 << 20
"""Bytes: a larger file is synced to the disk before it gets its name."""
_EMPTY = hashlib.sha256()
_WRITTEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK


class TooLong(Exception):  # noqa: N818 - said of what comes, not of us
    """More of a file arrives than was announced."""


class HomeFile(NamedTuple):
    """The state of a file here."""

    size: int
    modified: int
    inode: int


class WholePart(NamedTuple):
    """A complete file in the folder of incomplete ones; or a link, which leads to `to` from its own
    folder."""

    name: str
    sha256: str
    home: HomeFile
    """What it is once it is named."""
    to: str = ""
    aside: str = ""
    """The folder that it is in, which gets its name with all of them at once."""


class PartialFile:
    """A file that is being received, in the folder `parts`. An earlier part of it is continued."""

    to = aside = ""

    def __init__(self, parts: int, name: str, size: int) -> None:
        self.name, self.size = name, size
        self.home: HomeFile | None = None
        """What it is once it is named; None if it is not complete."""
        self._digest = hashlib.sha256()
        self._whole = ""
        self.at = 0
        """How many bytes of it are here."""
        try:
            self._file = os.open(name, _WRITTEN | os.O_EXCL, 0o666, dir_fd=parts)
        except FileExistsError:
            self._go_on(parts)

    def _go_on(self, parts: int) -> None:
        self._file = os.open(self.name, _WRITTEN, 0o666, dir_fd=parts)
        if os.fstat(self._file).st_nlink != 1:  # it landed, but an interruption left this name
            os.close(self._file)
            os.unlink(self.name, dir_fd=parts)
            self._file = os.open(self.name, _WRITTEN | os.O_EXCL, 0o666, dir_fd=parts)
        while piece := os.read(self._file, _PIECE):
            self._digest.update(piece)
            self.at += len(piece)
        if self.at > self.size:
            self.restart()

    @property
    def sha256(self) -> str:
        """The SHA-256 of what is here."""
        return self._whole or self._digest.hexdigest()

    def restart(self) -> None:
        """Discard what is here of it. Raises OSError."""
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        self._digest, self.at = hashlib.sha256(), 0

    def write(self, piece: bytes) -> None:
        """Append `piece`. Raises OSError, and TooLong if the file gets larger than its size."""
        if self.at + len(piece) > self.size:
            raise TooLong
        self._digest.update(piece)
        self.at += len(piece)
        _write_all(self._file, piece)

    def finish(self, sha256: str, modified: int) -> bool:
        """Set its time and close it, if all of it is here; else discard what is here of it, and
        return False. Raises OSError."""
        whole = self._digest.hexdigest()
        if (self.at, whole) != (self.size, sha256):
            self.restart()
            return False
        self.home = _with_time(self._file, modified)
        if self.size > _SYNCED:
            os.fsync(self._file)
        self._whole = whole
        self._digest = _EMPTY  # many may be waiting, and this takes most of the memory of each
        self.close()
        return True

    def close(self) -> None:
        """Close the file; what is here of it stays."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


Part = PartialFile | WholePart


def _write_all(file: int, content: bytes) -> None:
    done = os.write(file, content)
    while done < len(content):
        done += os.write(file, memoryview(content)[done:])


def _with_time(file: int, modified: int) -> HomeFile:
    """Give an open file its time; return what it is then."""
    try:  # noqa: SIM105 - that is a microsecond more for each file
        os.utime(file, ns=(modified, modified))
    except (OSError, OverflowError, ValueError):
        pass  # a box may name any time
    found = os.fstat(file)
    return HomeFile(found.st_size, found.st_mtime_ns, found.st_ino)


_MOST_BESIDE = 1000
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_TURN = "turn"
"""The name that whole small files have, one after the other, until they land."""


class LocalFolder:
    """A folder here with a box's files in it. A context manager."""

    def __init__(self, base: Path, inside: Sequence[str] = (), *, make: bool = False) -> None:
        """`base` is the user's own and may have links; the folders `inside` it may not be links.

        Raises OSError, NotSafeError if one of these is a link or a file.
        """
        self.place = base.joinpath(*inside)
        self._opened: tuple[str, int] = ("", -1)
        root = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
        self._root = self._open_chain(root, inside, make=make)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.look_again()
        os.close(self._root)

    def look_again(self) -> None:
        """Forget the folder that is open: the user may have moved it since."""
        if self._opened[1] >= 0:
            os.close(self._opened[1])
        self._opened = ("", -1)

    def write_new(self, name: str, content: bytes) -> None:
        """Write a small file directly in it, unless the name is taken. Raises OSError."""
        with contextlib.suppress(FileExistsError):
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=self._root)
            with os.fdopen(file, "wb") as opened:
                opened.write(content)

    def open(self, path: str) -> BinaryIO:
        """Open a plain file here to read it. Raises OSError."""
        folder, name = self._folder_of(path, make=False)
        return open_regular(Path(name), os.O_NOFOLLOW, folder)

    def digest(self, path: str) -> str:
        """Return the SHA-256 of a file here, or a link's digest; "" if there is neither."""
        digest = hashlib.sha256()
        try:
            with self.open(path) as file:
                while piece := file.read(_PIECE):
                    digest.update(piece)
        except OSError:
            from bootstrap.onbox.results.complete_files import link_digest

            to = self.leads_to(path)
            return link_digest(to) if to else ""
        return digest.hexdigest()

    def leads_to(self, path: str) -> str:
        """Return to which path in this folder a link here leads; "" if it is none that does."""
        with contextlib.suppress(OSError, NotSafeError):
            folder, name = self._folder_of(path, make=False)
            text = os.readlink(name, dir_fd=folder)
            to = posixpath.normpath(posixpath.join(posixpath.dirname(path), text))
            return "" if to.startswith(("/", "..")) or to == "." else to
        return ""

    def look(self, path: str, to: str = "") -> HomeFile | None:
        """Return the current state of a file here, or of a link that leads to `to`; None if there
        is none."""
        try:
            folder, name = self._folder_of(path, make=False)
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (OSError, NotSafeError):
            return None
        if to and self.leads_to(path) == to:
            return HomeFile(len(os.fsencode(to)), found.st_mtime_ns, found.st_ino)
        if stat.S_ISREG(found.st_mode) and not to:
            return HomeFile(found.st_size, found.st_mtime_ns, found.st_ino)
        return None

    def _folder_of(self, path: str, *, make: bool = True) -> tuple[int, str]:
        """Return the folder of a path, which stays open, and the path's last part."""
        folder, _, name = path.rpartition("/")
        if not folder:
            return self._root, name
        if self._opened[0] != folder:
            opened = self._open_chain(os.dup(self._root), folder.split("/"), make=make)
            self.look_again()
            self._opened = (folder, opened)
        return self._opened[1], name

    def _open_chain(self, folder: int, parts: Iterable[str], *, make: bool = True) -> int:
        """Open `parts` one below the other, and close `folder`. Raises OSError, NotSafeError."""
        for part in parts:
            try:
                inner = (
                    self._make_folder(folder, part)
                    if make
                    else os.open(part, _FOLDER, dir_fd=folder)
                )
            finally:
                os.close(folder)
            folder = inner
        return folder

    def _make_folder(self, folder: int, name: str, mode: int = 0o777) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, mode, dir_fd=folder)
        try:
            return os.open(name, _FOLDER, dir_fd=folder)
        except OSError:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                raise
        raise NotSafeError(
            f"{shown(name)} is not a folder here, but a link or a file.",
            where=str(self.place),
            hint="Move it away, or name another folder: --to FOLDER",
        )


class Destination(LocalFolder):
    """The folder that receives one run's results. One process at a time can open it."""

    def __init__(self, base: Path, inside: Sequence[str], run: str) -> None:
        """As `LocalFolder`, but makes the folders. Also raises BusyError."""
        base.mkdir(parents=True, exist_ok=True)
        super().__init__(base, inside, make=True)
        self._run = run
        self._parts = -1
        self._is_empty = False
        self._filled, self._new, self._wholes = "", -1, 0
        """The folder into which small files come; that folder aside, open, if it is not here yet;
        and how many files are in it, all of them whole."""
        self._news, self._named = 0, ""
        """How many folders were made aside, and which of them got its name last."""
        try:
            parts = self._make_folder(self._root, PARTS, 0o700)
            try:
                fcntl.flock(parts, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BaseException:
                os.close(parts)
                raise
            self._parts = parts
        except BlockingIOError:
            self.close()
            raise BusyError(
                "another pull is at work in this folder.",
                where=str(self.place),
                hint="Let it end, or end it, and run the same command again.",
            ) from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the folder; partial files stay, and the next pull continues them."""
        if self._parts >= 0:
            self._fill("")
            with contextlib.suppress(OSError):
                os.rmdir(PARTS, dir_fd=self._root)
            os.close(self._parts)
            self._parts = -1
        super().close()

    def partial(self, path: str, state: Sequence[int], size: int) -> PartialFile:
        """Open the partial file for a path and its state on the box. Raises OSError."""
        return PartialFile(self._parts, self._part(path, state), size)

    def whole(self, path: str, content: bytes, sha256: str, modified: int) -> WholePart:
        """Write a complete file. It lands before the next one; in a folder that is not here yet,
        with all of that. Raises OSError."""
        folder, _, last = path.rpartition("/")
        if folder != self._filled:
            self._fill(folder)
        aside = str(self._news) if self._new >= 0 else ""
        into, name = (self._new, last) if aside else (self._parts, _TURN)
        try:
            file = os.open(name, _WRITTEN | os.O_EXCL, 0o666, dir_fd=into)
        except FileExistsError:  # one that did not land, or of the same name but for its case
            aside, into, name = "", self._parts, _TURN
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=into)
            file = os.open(name, _WRITTEN | os.O_EXCL, 0o666, dir_fd=into)
        try:
            _write_all(file, content)
            home = _with_time(file, modified)
        finally:
            os.close(file)
        self._wholes += 1
        return WholePart(f"{aside}/{name}" if aside else name, sha256, home, aside=aside)

    def _fill(self, folder: str) -> None:
        """Make a folder aside, for the small files of one that is not here yet."""
        if self._new >= 0:
            os.close(self._new)
        self._filled, self._new, self._wholes = folder, -1, 0
        try:
            self._folder_of(f"{folder}/", make=False)
        except FileNotFoundError:
            self._news += 1
            os.mkdir(str(self._news), dir_fd=self._parts)
            self._new = os.open(str(self._news), _FOLDER, dir_fd=self._parts)
        except OSError:
            pass  # said of each file

    def _name_folder(self, aside: str, path: str) -> bool:
        """Give a folder aside its name, with all that is in it; return False if that is taken, or
        something in it is not whole."""
        if path == self._filled:  # nothing is written into a folder that has its name
            is_whole = self._wholes == len(os.listdir(self._new))  # noqa: PTH208 - it is open
            self._fill("")
            if not is_whole:
                return False
        folder, name = self._folder_of(path)
        try:
            os.rename(aside, name, src_dir_fd=self._parts, dst_dir_fd=folder)
        except OSError:
            return False
        self._named = aside
        return True

    def link(self, path: str, to: str) -> WholePart:
        """Make a link that `land` takes. Raises OSError."""
        from bootstrap.onbox.results.complete_files import link_digest

        name = self._part(path, ())
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._parts)
        text = posixpath.relpath(to, posixpath.dirname(path) or ".")
        os.symlink(text, name, dir_fd=self._parts)
        found = os.stat(name, dir_fd=self._parts, follow_symlinks=False)
        home = HomeFile(len(os.fsencode(to)), found.st_mtime_ns, found.st_ino)
        return WholePart(name, link_digest(to), home, to)

    def begun(self, path: str, state: Sequence[int], size: int) -> int:
        """Return how many bytes of it are here already."""
        if self._is_empty:
            return 0
        try:
            found = os.stat(self._part(path, state), dir_fd=self._parts, follow_symlinks=False)
        except OSError:
            return 0
        is_part = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
        return found.st_size if is_part and found.st_size <= size else 0

    def forget_others(self, kept: Iterable[tuple[str, Sequence[int]]]) -> None:
        """Remove partial files of files that have changed or are gone."""
        self._fill("")
        there = os.listdir(self._parts)  # noqa: PTH208 - of a folder that is open
        self._is_empty = not there
        names = {self._part(*one) for one in kept} if there else set()
        for name in there:
            if name not in names:
                with contextlib.suppress(OSError):
                    self._forget(name)

    def _forget(self, name: str) -> None:
        """Remove a partial file, or a folder that did not get its name. Raises OSError."""
        try:
            folder = os.open(name, _FOLDER, dir_fd=self._parts)
        except NotADirectoryError:
            os.unlink(name, dir_fd=self._parts)
            return
        try:
            for one in os.listdir(folder):  # noqa: PTH208 - of a folder that is open
                os.unlink(one, dir_fd=folder)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=self._parts)

    @staticmethod
    def _part(path: str, state: Sequence[int]) -> str:
        words = "\0".join([path, *map(str, state)])
        return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:40]

    def land(
        self,
        path: str,
        partial: Part,
        ours: Callable[[str, str], Collection[str]],
        replaces: Callable[[str, str, str], None],
    ) -> tuple[str, HomeFile | None]:
        """Give a complete file its name; return the path below this folder that it got, and what is
        there now.

        `ours(path, name)`: digests of what pulls of this run put there for it. Only that is
        replaced, and `replaces(path, digest, name)` is called before. Else it gets another name.
        Raises OSError, NotSafeError.
        """
        aside = partial.aside
        if aside and (aside == self._named or self._name_folder(aside, path.rpartition("/")[0])):
            return path, partial.home
        for name in self._names(path):
            folder, last = self._folder_of(name)
            if self._link_new(partial, folder, last):
                return name, partial.home
            content = self.digest(name)
            if content == partial.sha256:
                os.unlink(partial.name, dir_fd=self._parts)
                return name, self.look(name, partial.to)
            if content and content in ours(path, name):
                replaces(path, partial.sha256, name)
                os.rename(partial.name, last, src_dir_fd=self._parts, dst_dir_fd=folder)
                return name, partial.home
        raise NotSafeError(
            f"{shown(path)}: other files have its name, and {_MOST_BESIDE} more beside it.",
            where=str(self.place),
            hint="Name another folder: --to FOLDER",
        )

    def _names(self, path: str) -> Iterator[str]:
        yield path
        yield from (name_beside(path, self._run, number) for number in range(1, _MOST_BESIDE))

    def _link_new(self, partial: Part, folder: int, name: str) -> bool:
        """Name the file; return False if the name is taken."""
        parts = self._parts
        try:
            os.link(partial.name, name, src_dir_fd=parts, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return False
        except OSError:  # this file system has no hard links
            if _is_there(folder, name):
                return False
            os.rename(partial.name, name, src_dir_fd=self._parts, dst_dir_fd=folder)
            return True
        os.unlink(partial.name, dir_fd=self._parts)
        return True


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True
