"""A file that is being received: counted, hashed, and named only when it is complete."""

from __future__ import annotations

import contextlib
import hashlib
import os

_PIECE = 1 << 20
_SYNCED = 1 << 20
"""Bytes: a larger file is synced to the disk before it gets its name."""
_EMPTY = hashlib.sha256()
_WRITTEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK


class TooLong(Exception):  # noqa: N818 - said of what comes, not of us
    """More of a file arrives than was announced."""


class PartialFile:
    """A file that is being received, in the folder `parts`. An earlier part of it is continued."""

    def __init__(self, parts: int, name: str, size: int) -> None:
        self.name, self.size = name, size
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
        rest = memoryview(piece)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def finish(self, modified: int) -> None:
        """Set its time and close it, once all of it is here. Raises OSError."""
        with contextlib.suppress(OSError, OverflowError, ValueError):  # a box may name any time
            os.utime(self._file, ns=(modified, modified))
        if self.size > _SYNCED:
            os.fsync(self._file)
        self._whole = self._digest.hexdigest()
        self._digest = _EMPTY  # many may be waiting, and this takes most of the memory of each
        self.close()

    def close(self) -> None:
        """Close the file; what is here of it stays."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
