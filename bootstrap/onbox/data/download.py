"""Fetch items of `data:`: list their files, check disk space, download all, unpack, put in place.

Files are downloaded in parallel, large ones in blocks, which are kept after an interruption. A file
gets its own name once it is complete and checked; until then it is in a `.part` file.

An archive is not trusted: only files and folders, below one folder, limited in size. One with
anything else is refused as a whole: links, devices, `..`, or content that is far larger than the
archive.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tarfile
import threading
import time
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..run_folder import write_whole
from ..step_report import tell
from .items import DataError, Item, Places
from .records import DataRecord, DataRecords, placed
from .sources import (
    MOST_FILES,
    REFUSED,
    Addresses,
    DataFile,
    Https,
    OwnServer,
    files_of,
    plain,
    safe_path,
    try_again,
)

BLOCK = 32 * 1024 * 1024
PIECE = 1024 * 1024
WORKERS = 8
RESERVE = 256 * 1024 * 1024
"""Bytes of disk space that are left free."""


class Download:
    """Downloads all files of a setup. `report` gets the bytes received so far, every 0.5 s."""

    def __init__(self, https: Https, addresses: Addresses, report: Callable[[int], None]) -> None:
        self._https = https
        self._addresses = addresses
        self._signed = OwnServer()
        self._report = report
        self._lock = threading.Lock()
        self._received = 0
        self._told = 0.0
        self._error: BaseException | None = None

    def fetch(self, files: list[tuple[DataFile, Path]]) -> None:
        """Download each file to its path. Raises DataError; blocks are kept for the next try."""
        with ThreadPoolExecutor(WORKERS) as pool:
            for wanted, place in files:
                for task in _FileParts(self, wanted, place).tasks():
                    pool.submit(self._unless_failed, task)
        if self._error:
            raise self._error
        self._tell(0, now=True)

    def _unless_failed(self, task: Callable[[], None]) -> None:
        if self._error is None:
            try:
                task()
            except BaseException as error:
                self._error = self._error or error

    def received(self, count: int) -> None:
        """Count bytes; negative if a file starts again. Raises the error of any failed task."""
        if self._error:
            raise self._error
        self._tell(count)

    def _tell(self, count: int, *, now: bool = False) -> None:
        with self._lock:
            self._received += count
            if now or time.monotonic() - self._told > 0.5:
                self._told = time.monotonic()
                self._report(self._received)

    def open(self, wanted: DataFile, headers: dict[str, str]) -> Any:  # noqa: ANN401 - see Https
        """Request a file; if its signed URL has expired, request it with a new one."""
        if wanted.signed_of < 0:
            return self._https.open(wanted.url, headers, wanted.token)
        url = self._addresses.current(wanted)
        try:
            return self._signed.open(url, headers)
        except DataError as error:
            if error.status not in REFUSED:
                raise
        return self._signed.open(self._addresses.renewed(wanted, url), headers)


class _FileParts:
    """One file: its blocks, in a part file next to its path until it is complete."""

    def __init__(self, download: Download, wanted: DataFile, place: Path) -> None:
        self._download = download
        self._wanted = wanted
        self._name = plain(wanted.url) if wanted.url else wanted.path
        self._place = place
        self._part = part_of(place)
        self._noted = self._part.with_suffix(".json")
        self._lock = threading.Lock()
        self._left = 0
        self._done: set[int] = set()

    def tasks(self) -> list[Callable[[], None]]:
        """Return the remaining tasks; several threads may call them, in any order."""
        self._place.parent.mkdir(parents=True, exist_ok=True)
        size = self._wanted.size
        if size <= BLOCK or not self._wanted.ranges:
            return [self._whole]
        self._done = self._blocks_there()
        left = [number for number in range(-(-size // BLOCK)) if number not in self._done]
        self._left = len(left)
        self._download.received(sum(self._length(number) for number in self._done))
        if not left:
            return [self._finish]
        with _writing(self._part, self._part.exists()) as file:
            file.truncate(size)
        return [lambda number=number: self._block(number) for number in left]  # type: ignore[misc]

    def _length(self, number: int) -> int:
        return min(BLOCK, self._wanted.size - number * BLOCK)

    def _blocks_there(self) -> set[int]:
        with suppress(OSError, ValueError, TypeError, KeyError):
            state = json.loads(self._noted.read_text(encoding="utf-8"))
            whole = self._part.stat().st_size == self._wanted.size
            is_named = self._wanted.sha256 or self._wanted.blob or self._wanted.tag
            if is_named and state["of"] == self._identity() and whole:
                return {int(number) for number in state["done"]}
        return set()

    def _identity(self) -> str:
        """Identify the version of the file: blocks of another version are dropped."""
        wanted = self._wanted
        state = wanted.tag and f"{plain(wanted.url)} {wanted.tag}"
        return f"{wanted.size} {wanted.sha256 or wanted.blob or state}"

    def _block(self, number: int) -> None:
        """Fetch one block; retry as long as some data keeps coming."""
        begin, there = number * BLOCK, 0
        end = begin + self._length(number)
        with _writing(self._part, keep=True) as file:

            def once() -> None:
                nonlocal there
                self._download.received(0)
                headers = {"Range": f"bytes={begin + there}-{end - 1}", **self._unchanged()}
                with self._download.open(self._wanted, headers) as answer:
                    is_part = _begins_at(answer, begin + there, self._wanted.size)
                    if not is_part or self._is_another(answer):
                        raise DataError("data-changed", f"{self._name} changed during the download")
                    while begin + there < end and (
                        piece := answer.read(min(PIECE, end - begin - there))
                    ):
                        _write(file, piece, begin + there)
                        there += len(piece)
                        self._download.received(len(piece))
                if begin + there < end:
                    raise EOFError("the server hung up")

            try_again(once, self._name, lambda: there)
            os.fdatasync(file.fileno())
        with self._lock:
            self._done.add(number)
            self._left -= 1
            state = {"of": self._identity(), "done": sorted(self._done)}
            write_whole(self._noted, json.dumps(state))
            is_last = not self._left
        if is_last:
            self._finish()

    def _unchanged(self) -> dict[str, str]:
        """Return headers with which a server sends no range of a file that has changed."""
        tag = self._wanted.tag
        if tag.startswith('"'):
            return {"If-Range": tag}
        return {"If-Unmodified-Since": tag} if tag.endswith(" GMT") else {}

    def _is_another(self, answer: Any) -> bool:  # noqa: ANN401 - see Https
        """Return whether an answer is of another version: some servers ignore conditions.

        If a digest is known, it decides in the end.
        """
        wanted = self._wanted
        if wanted.sha256 or wanted.blob or wanted.signed_of >= 0 or not wanted.tag:
            return False
        said = answer.headers.get("Last-Modified" if wanted.tag.endswith(" GMT") else "ETag")
        return said not in (None, wanted.tag)

    def _whole(self) -> None:
        """Fetch a small file, or one whose server supports no ranges, in one piece."""
        there = 0
        with _writing(self._part, keep=False) as file:

            def once() -> None:
                nonlocal there
                self._download.received(-there)
                there = 0
                file.truncate(0)
                with self._download.open(self._wanted, {}) as answer:
                    while piece := answer.read(PIECE):
                        there += len(piece)
                        if there > self._wanted.size >= 0:
                            raise DataError(
                                "data-changed",
                                f"{self._name} is larger than announced",
                            )
                        if self._wanted.size < 0:
                            _check_room(self._part.parent)
                        _write(file, piece, there - len(piece))
                        self._download.received(len(piece))
                if there < self._wanted.size:
                    raise EOFError("the server hung up")

            try_again(once, self._name, lambda: there)
            os.fdatasync(file.fileno())
        self._finish()

    def _finish(self) -> None:
        """Check the digest, and give the file its name."""
        if not has_digest(self._part, self._wanted):
            self._part.unlink()
            with suppress(OSError):
                self._noted.unlink()
            raise DataError(
                "data-digest",
                f"{self._name} does not have the digest {self._wanted.sha256 or self._wanted.blob}",
            )
        self._part.chmod(0o644)
        self._part.replace(self._place)
        with suppress(OSError):
            self._noted.unlink()


def part_of(place: Path) -> Path:
    """Return the path of a file until it is complete."""
    name = hashlib.sha256(os.fsencode(place.name)).hexdigest()[:16]
    return place.with_name(f".boxstrap-{name}.part")


def has_digest(path: Path, wanted: DataFile) -> bool:
    """Return whether a file has the known digest or, if none is known, the known size."""
    if not (wanted.sha256 or wanted.blob):
        return wanted.size < 0 or path.stat().st_size == wanted.size
    if wanted.sha256:
        digest = hashlib.sha256()
    else:
        digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size)  # noqa: S324 - git's own name
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest() == (wanted.sha256 or wanted.blob)


def _begins_at(answer: Any, at: int, size: int) -> bool:  # noqa: ANN401 - see Https
    span = r"bytes ([0-9]{1,18})-[0-9]+/([0-9]+|\*)"
    said = re.fullmatch(span, answer.headers.get("Content-Range", ""))
    return bool(said and int(said[1]) == at and said[2] in ("*", str(size)))


def _writing(path: Path, keep: bool) -> Any:  # noqa: ANN401 - a binary file
    """Open a file for writing, with mode 0600: nobody else reads it before it is complete."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | (0 if keep else os.O_TRUNC)
    return os.fdopen(os.open(path, flags, 0o600), "r+b", buffering=0)


def _write(file: Any, piece: bytes, at: int) -> None:  # noqa: ANN401 - a binary file
    try:
        while piece:
            count = os.pwrite(file.fileno(), piece, at)
            piece, at = piece[count:], at + count
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DataError("disk-full", f"No space left for {file.name}") from None
        raise DataError("data-failed", f"{file.name}: {error}") from None


def _check_room(folder: Path) -> None:
    if shutil.disk_usage(folder).free < RESERVE:
        raise DataError("disk-full", f"No space left in {folder}")


MOST_TIMES = 200
"""An archive may unpack to this many times its size; to `LEAST` bytes in any case."""
LEAST = 1024**3
MOST_HEADER = 1024 * 1024
"""Most bytes of an extended header of tar, as for a long name: it is read into memory."""


class _Member(tarfile.TarInfo):
    """A member of a tar whose extended headers are limited in size."""

    def _proc_member(self, tar: tarfile.TarFile) -> Any:  # noqa: ANN401 - tarfile's hook
        header = self.type in (
            *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
            *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
        )
        if header and self.size > MOST_HEADER:
            raise DataError("data-archive", "a header in the archive is too large")
        return super()._proc_member(tar)  # type: ignore[misc]


def unpack(archive: Path, name: str, into: Path) -> list[str]:
    """Unpack `archive` into the empty folder `into`; return the files' paths.

    Messages call it `name`. Raises DataError, OSError.
    """
    unpacked = _Unpacking(into, max(LEAST, MOST_TIMES * archive.stat().st_size))
    try:
        for path, mode, content in _members(archive):
            unpacked.take(path, mode, content)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise DataError("data-archive", f"{name} can't be unpacked: {error}") from None
    except (RuntimeError, NotImplementedError) as error:  # e.g. it is encrypted
        raise DataError("data-archive", f"{name} can't be unpacked: {error}") from None
    if not unpacked.files:
        raise DataError("data-archive", f"{name} has no files")
    return sorted(unpacked.files)


class _Unpacking:
    def __init__(self, into: Path, most: int) -> None:
        self._into = into
        self._most = most
        self._size = 0
        self._looked = 0
        self.files: set[str] = set()

    def take(self, path: str, mode: int, content: IO[bytes]) -> None:
        try:
            path = safe_path(os.path.normpath(path))
        except DataError as error:
            raise DataError("data-archive", str(error)) from None
        self.files.add(path)
        if len(self.files) > MOST_FILES:
            raise DataError("data-archive", f"it has more than {MOST_FILES} files")
        file = self._into / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as out:
            while piece := content.read(PIECE):
                self._count(len(piece))
                out.write(piece)
        file.chmod(0o755 if mode & 0o100 else 0o644)

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > self._most:
            raise DataError("data-archive", "it unpacks to far more than its own size")
        if self._size - self._looked >= 64 * PIECE or not self._looked:
            self._looked = self._size
            if shutil.disk_usage(self._into).free < RESERVE:
                raise DataError("disk-full", "No space left on device for what is unpacked")


_OTHERS = (
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a rar archive"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"<!doctype html", "a web page, perhaps one that asks for a login"),
    (b"<html", "a web page, perhaps one that asks for a login"),
)
"""What is not unpacked, by how it begins, in lower case if it is text."""
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")
"""How a tar begins that is compressed with gzip, bzip2 or xz."""


def _members(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield an archive's files, its kind being told by its content: an address says little."""
    with archive.open("rb") as file:
        head = file.read(512)
    for begins, what in _OTHERS:
        if head.startswith(begins) or head.lstrip().lower().startswith(begins):
            raise ValueError(f"it is {what}; zip and tar (plain, gz, bz2, xz) are unpacked")
    is_tar = head.startswith(_COMPRESSED) or head[257:262] == b"ustar"
    # A zip may follow a program that unpacks it, and a tar may end with a zip.
    return _zip(archive) if not is_tar and zipfile.is_zipfile(archive) else _tar(archive)


def _tar(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    with tarfile.open(archive, "r|*", tarinfo=_Member) as tar:
        for member in tar:
            tar.members = []  # type: ignore[attr-defined] # otherwise it keeps them all
            if member.isdir():
                continue
            if not member.isreg():
                raise _refused(member.name)
            content = tar.extractfile(member)
            assert content is not None  # noqa: S101 - it is a file
            yield member.name, member.mode, content


def _zip(archive: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            mode = member.external_attr >> 16
            if member.is_dir() or member.filename.endswith("\\"):
                continue
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise _refused(member.filename)
            with packed.open(member) as content:
                yield _unix_name(member.filename), mode, content


def _unix_name(name: str) -> str:
    """Return the name of a zip's member with slashes: Windows' own tools write backslashes, which
    the format forbids. Raises DataError for a name on a drive."""
    if re.match(r"[A-Za-z]:[\\/]", name):
        raise DataError("data-archive", f"this file name is not allowed: {name[:200]!r}")
    return name.replace("\\", "/")


def _refused(name: str) -> DataError:
    return DataError(
        "data-archive",
        f"the archive contains an entry that is not a plain file or folder: {name[:200]!r}",
    )


GIB = 1024**3


class Fetching(NamedTuple):
    """One item: its files, and the path of each."""

    item: Item
    key: str
    target: Path
    files: list[tuple[DataFile, Path]]
    to_fetch: list[tuple[DataFile, Path]]
    """The files that aren't there yet."""


def fetch_items(items: list[Item], places: Places, records: DataRecords) -> None:
    """Fetch items. Raises OSError, and DataError (early if it can be known before fetching)."""
    https, addresses = Https(), Addresses(places.lists)
    found = [_look(item, places, records, https, addresses) for item in items]
    for each in found:
        if each.item.source.startswith("https:") and not each.item.sha256:
            tell("warn code=data-unpinned")
    _check_space(found)
    files = [pair for each in found for pair in each.to_fetch]
    if len({place for _, place in files}) < len(files):
        raise DataError("data-in-the-way", "two items of data have a file for the same place")
    total = sum(max(0, wanted.size) for wanted, _ in files)
    is_known = all(wanted.size >= 0 for wanted, _ in files)

    def report(done: int) -> None:
        # While data is also being sent, the sender's progress is shown.
        if (places.lists / "data.sent").exists() or not (places.lists / "data.waits").exists():
            tell(f"progress done={done} {f'total={total} ' if is_known else ''}unit=bytes")

    for each in found:
        absent = {str(place) for _, place in each.files if not os.path.lexists(place)}
        records.begin(each.key, absent)
    Download(https, addresses, report).fetch(files)
    for each in found:
        _place(each, records)


def _look(
    item: Item, places: Places, records: DataRecords, https: Https, addresses: Addresses
) -> Fetching:
    """Find which files of an item to fetch, and where to."""
    files = try_again(lambda: files_of(item, https, addresses.files_of), item.source)
    key, target = places.key(item), places.target(item)
    if item.unpack:
        if len(files) != 1:
            raise DataError("data-archive", f"{item.source} is not a single archive")
        pairs = [(files[0], places.home / "data" / (f"{key}.archive"))]
    elif len(files) == 1 and files[0].is_alone:
        pairs = [(files[0], target / files[0].path if item.to.endswith("/") else target)]
    else:
        pairs = [(file, target / file.path) for file in files]
    earlier, begun = records.earlier(str(target)), records.begun(key)
    to_fetch = [
        (file, place)
        for file, place in pairs
        if not _is_there(file, place, begun=str(place) in begun, earlier=str(place) in earlier)
    ]
    return Fetching(item, key, target, pairs, to_fetch)


def _is_there(file: DataFile, place: Path, *, begun: bool, earlier: bool) -> bool:
    """Return whether a file is at its path already. Raises DataError if something else is.

    `begun`: this item put it there before an interruption; `earlier`: a former item of its target.
    """
    if not os.path.lexists(place):
        return False
    if place.is_file() and not place.is_symlink():
        is_known = bool(file.sha256 or file.blob)
        if (is_known or (begun and file.size >= 0)) and has_digest(place, file):
            return True
        if begun or earlier:
            return False
    raise DataError("data-in-the-way", f"{place} already exists with different content")


def _check_space(found: list[Fetching]) -> None:
    """Raise DataError if a disk is too small. An archive needs at least twice its own size."""
    needs: defaultdict[int, int] = defaultdict(int)
    folders = {}
    for each in found:
        for file, place in each.to_fetch:
            folder = _existing(place.parent)
            device = folder.stat().st_dev
            folders[device] = folder
            part = part_of(place)
            there = part.stat().st_blocks * 512 if part.exists() else 0
            needs[device] += max(0, file.size * (2 if each.item.unpack else 1) - there)
    for device, need in needs.items():
        free = max(0, shutil.disk_usage(folders[device]).free - RESERVE)
        if need > free:
            need_mb, free_mb = max(1, round(need / 1e6)), round(free / 1e6)
            raise DataError(
                f"data-space need={need_mb} have={free_mb}",
                f"{need_mb} MB are to be fetched, and {folders[device]} has {free_mb} MB left",
            )


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder


def _place(each: Fetching, records: DataRecords) -> None:
    """Record a complete item; if it is an archive, unpack it first."""
    paths = [place for _, place in each.files]
    if each.item.unpack:
        paths = _unpacked(each, records)
    earlier = records.earlier(str(each.target))
    files = tuple(file for file in map(placed, map(str, paths)) if file)
    if not each.item.to.endswith("/"):  # with a slash, others may use the folder
        for path in earlier.keys() - {file.path for file in files}:
            Path(path).unlink()
    records.keep(each.key, DataRecord(str(each.target), files))
    if each.item.unpack:
        each.files[0][1].unlink()


def _unpacked(each: Fetching, records: DataRecords) -> list[Path]:
    """Unpack next to the target, check that nothing is in the way, then move the files there."""
    target, archive = each.target, each.files[0][1]
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".boxstrap-{each.key[:16]}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    try:
        names = unpack(archive, plain(each.item.source), beside)
        paths = [target / name for name in names]
        ours = {*records.earlier(str(target)), *records.begun(each.key)}
        for path in paths:
            if os.path.lexists(path) and str(path) not in ours:
                raise DataError("data-in-the-way", f"{path} is there already")
        records.begin(each.key, {str(path) for path in paths})
        for name in names:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (beside / name).replace(target / name)
    except DataError as error:
        if error.code == "data-archive":  # for other reasons it need not be fetched again
            archive.unlink()
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return paths
