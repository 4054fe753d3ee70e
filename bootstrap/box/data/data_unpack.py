"""Unpack an untrusted archive: only files and folders, below one folder, limited in size.

An archive with anything else is refused as a whole: links, devices, `..`, or content that is far
larger than the archive.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from .data_download import PIECE, RESERVE
from .data_sources import MOST_FILES, safe_path
from .data_words import DataError

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
    """Unpack `archive`, called `name`, into the empty folder `into`; return the files' paths.

    Raises DataError, OSError.
    """
    unpacked = _Unpacking(into, max(LEAST, MOST_TIMES * archive.stat().st_size))
    try:
        for path, mode, content in _zip(archive) if name.endswith(".zip") else _tar(archive):
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
        """Write one file."""
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
            if member.is_dir():
                continue
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise _refused(member.filename)
            with packed.open(member) as content:
                yield member.filename, mode, content


def _refused(name: str) -> DataError:
    return DataError(
        "data-archive",
        f"the archive contains an entry that is not a plain file or folder: {name[:200]!r}",
    )
