"""What is sent of files here: their list with size and time, and frames, hashed on the way."""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from bootstrap.errors import UsageError
from bootstrap.onbox.results.complete_files import with_folders
from bootstrap.onbox.transfer.frames import BLOCK, decoded_name, encoded_name
from bootstrap.paths import open_regular, real
from bootstrap.transfer.destination import LocalFolder
from bootstrap.transfer.frames import Frame
from bootstrap.value import dataclass, field

PARTS = ".boxstrap-parts"
"""The folder of incomplete files."""
GONE = "it is no longer here"


class SourceFile(NamedTuple):
    """One file, with its path below the source's root, as in frames."""

    path: str
    size: int
    mtime: int
    """Nanoseconds."""
    mode: int
    to: str = ""
    """The text of a link that is sent as one."""


@dataclass
class SourceFiles:
    """All that is sent, and what is not."""

    root: Path
    files: list[SourceFile] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    """Empty folders."""
    left_out: list[str] = field(default_factory=list)
    """What can't be sent, each with its reason in words."""

    @property
    def bytes(self) -> int:
        """Total size of all files."""
        return sum(file.size for file in self.files)


def read_source(source: Path, exclude: Sequence[str] = ()) -> SourceFiles:
    """List everything at `source`, without what `exclude` names in `.gitignore` style.

    A link to what is listed is listed as one, after all files. Raises UsageError if there is
    nothing to read, or a pattern is invalid.
    """
    try:
        found = source.stat()
        if stat.S_ISREG(found.st_mode):
            files = SourceFiles(source.parent)
            files.files.append(_file(decoded_name(os.fsencode(source.name)), found))
            return files
        if not stat.S_ISDIR(found.st_mode):
            raise UsageError("only files and folders can be sent.", where=str(source))
        walk = _Walk(SourceFiles(source), _excluding(exclude))
        walk.folder(source, "")
        walk.add_links()
    except OSError as error:
        raise UsageError(
            f"it can't be read: {(error.strerror or str(error)).lower()}.",
            where=str(error.filename or source),
        ) from None
    return walk.found


def _excluding(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that says whether a path is excluded; a folder's path ends in a slash."""
    if not patterns:
        return lambda _path: False
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(patterns).match_file
    except ValueError as error:
        raise UsageError(f"not a .gitignore pattern: {error}", where="exclude") from None


def _file(path: str, found: os.stat_result, to: str = "") -> SourceFile:
    size = len(encoded_name(to)) if to else found.st_size
    return SourceFile(path, size, found.st_mtime_ns, stat.S_IMODE(found.st_mode), to)


class _Walk:
    def __init__(self, found: SourceFiles, excludes: Callable[[str], bool]) -> None:
        self.found = found
        self._excludes = excludes
        self._root = real(found.root)
        self._links: dict[str, tuple[SourceFile, str]] = {}
        """Each link, and the path below the source to which it leads."""

    def folder(self, folder: Path, path: str) -> None:
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: os.fsencode(entry.name))
        for entry in ordered:
            self._entry(entry, f"{path}{decoded_name(os.fsencode(entry.name))}")
        if not ordered and path:
            self.found.empty.append(path.rstrip("/"))

    def _entry(self, entry: os.DirEntry[str], path: str) -> None:
        try:
            is_folder = entry.is_dir()  # fails for a link to itself
            if entry.name == PARTS or self._excludes(f"{path}/" if is_folder else path):
                return
            if entry.is_symlink() and not real(Path(entry)).is_relative_to(self._root):
                self._leave_out(path, "a link that leads out of the folder")
            elif entry.is_symlink():
                self._link(Path(entry), path)
            elif is_folder:
                self.folder(Path(entry), f"{path}/")
            elif entry.is_file():
                self.found.files.append(_file(path, entry.stat()))
            elif not os.path.lexists(entry):
                self._leave_out(path, GONE)
            else:
                self._leave_out(path, "no file: a pipe, a socket or a device")
        except FileNotFoundError:
            self._leave_out(path, GONE)
        except OSError as error:
            self._leave_out(path, (error.strerror or str(error)).lower())

    def _link(self, link: Path, path: str) -> None:
        to = real(link)
        text = decoded_name(os.fsencode(os.path.relpath(to, real(link.parent))))
        led = decoded_name(os.fsencode(to.relative_to(self._root)))
        self._links[path] = _file(path, link.lstat(), text), led

    def add_links(self) -> None:
        """List the links that lead to something that is sent."""
        sent = with_folders([*(file.path for file in self.found.files), *self.found.empty])
        for path, (link, led) in self._links.items():
            if led in sent:
                self.found.files.append(link)
            else:
                self._leave_out(path, "a link to what is not sent")

    def _leave_out(self, path: str, why: str) -> None:
        self.found.left_out.append(f"{path}: {why}")


_EVERY_S = 0.1
"""Seconds between two reports of progress."""


@dataclass
class PushProgress:
    """How far a push is, counting only what is sent, not what the box has already."""

    files: int = 0
    all_files: int = 0
    bytes: int = 0
    all_bytes: int = 0


class FileSender:
    """Files of the folder `root` as frames; `tell` is called with the progress.

    `by_link`: a link was named, which leads to the only file.
    """

    def __init__(
        self, root: Path, tell: Callable[[PushProgress], None], *, by_link: bool = False
    ) -> None:
        self._root, self._tell, self._by_link = os.fsencode(root), tell, by_link
        self._told = 0.0
        self.progress = PushProgress()
        self.sent = 0
        """Bytes of files that were written to the link, those sent twice included."""
        self.changed: list[int] = []
        """Files that changed since they were listed, and were not sent."""
        self.unread: list[int] = []
        """Files that can't be read."""

    def path(self, file: SourceFile) -> bytes:
        """Return a file's path here."""
        return os.path.join(self._root, encoded_name(file.path))

    def _open(self, file: SourceFile) -> IO[bytes]:
        """Open it, by no link that took its place or a folder's since it was listed. Raises
        OSError."""
        if self._by_link:
            return open_regular(Path(os.fsdecode(self.path(file))))
        with LocalFolder(Path(os.fsdecode(self._root))) as folder:
            return folder.open(os.fsdecode(encoded_name(file.path)))

    def comparisons(self, files: Iterable[tuple[int, SourceFile]]) -> Iterator[Frame]:
        """Yield questions whether the box has files with exactly this content."""
        for i, file in files:
            digest = hashlib.sha256(encoded_name(file.to))
            try:
                if not file.to:
                    with self._open(file) as source:
                        _hash(source, digest, file.size)
            except OSError:
                self.unread.append(i)
                continue
            asked = {"op": "compare", "i": i, "path": file.path, "mtime": file.mtime}
            yield {**asked, "link": bool(file.to), "sha256": digest.hexdigest()}, b""

    def frames(self, files: Iterable[tuple[int, SourceFile, int]]) -> Iterator[Frame]:
        """Yield the frames of each (number, file, bytes of it that the box has already)."""
        for i, file, begun in files:
            put = {"op": "put", "i": i, "path": file.path, "size": file.size, "mtime": file.mtime}
            put |= {"mode": file.mode, "at": begun}
            if file.to:
                text = encoded_name(file.to)
                yield (
                    {**put, "at": 0, "link": True, "sha256": hashlib.sha256(text).hexdigest()},
                    text,
                )
                self._count(len(text))
                continue
            try:
                source = self._open(file)
            except OSError:
                self.unread.append(i)
                continue
            with source:
                if not _is_as_listed(source, file):
                    self.changed.append(i)
                elif file.size <= BLOCK:
                    yield from self._small(put, source, file)
                else:
                    yield from self._large(put, source, file)

    def _small(self, put: dict[str, Any], source: IO[bytes], file: SourceFile) -> Iterator[Frame]:
        try:
            body = source.read(file.size)
        except OSError:
            self.unread.append(put["i"])
            return
        if len(body) != file.size or not _is_as_listed(source, file):
            self.changed.append(put["i"])
            return
        yield {**put, "at": 0, "sha256": hashlib.sha256(body).hexdigest()}, body
        self._count(len(body))

    def _large(self, put: dict[str, Any], source: IO[bytes], file: SourceFile) -> Iterator[Frame]:
        yield put, b""
        digest = hashlib.sha256()
        rest = file.size
        with suppress(OSError):  # then `done` has no digest, and the box drops the file
            rest -= _hash(source, digest, put["at"])
            while rest and (block := source.read(min(BLOCK, rest))):
                digest.update(block)
                yield {}, block
                rest -= len(block)
                self._count(len(block))
        is_whole = not rest and _is_as_listed(source, file)
        yield {"op": "done", **({"sha256": digest.hexdigest()} if is_whole else {})}, b""

    def _count(self, size: int) -> None:
        self.sent += size
        self.progress.bytes += size
        self.tell()

    def tell(self) -> None:
        """Report the progress, unless that was done a moment ago; the last of it always."""
        now = time.monotonic()
        if now - self._told >= _EVERY_S or self.progress.files == self.progress.all_files:
            self._told = now
            self._tell(self.progress)


def _hash(source: IO[bytes], digest: Any, size: int) -> int:  # noqa: ANN401 - hashlib's
    """Hash the next `size` bytes; return how many there were. Raises OSError."""
    rest = size
    while rest and (piece := source.read(min(4 * BLOCK, rest))):
        digest.update(piece)
        rest -= len(piece)
    return size - rest


def _is_as_listed(source: IO[bytes], file: SourceFile) -> bool:
    found = os.fstat(source.fileno())
    return (found.st_size, found.st_mtime_ns) == (file.size, file.mtime)
