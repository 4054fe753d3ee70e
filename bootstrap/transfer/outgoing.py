"""The frames of files that are sent to a box: read and hashed on the way."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bootstrap.box.transfer.frames import BLOCK, encoded_name
from bootstrap.protocol.transfer import Frame
from bootstrap.transfer.source import SourceFile

_EVERY_S = 0.1
"""Seconds between two reports of progress."""


@dataclass
class PushProgress:
    """How far a push is, counting only what is sent, not what the box has already."""

    files: int = 0
    all_files: int = 0
    bytes: int = 0
    all_bytes: int = 0


class Outgoing:
    """Files of the folder `root` as frames; `tell` is called with the progress."""

    def __init__(self, root: Path, tell: Callable[[PushProgress], None]) -> None:
        self._root, self._tell = os.fsencode(root), tell
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

    def comparisons(self, files: Iterable[tuple[int, SourceFile]]) -> Iterator[Frame]:
        """Yield questions whether the box has files with exactly this content."""
        for i, file in files:
            digest = hashlib.sha256()
            try:
                with open(self.path(file), "rb", buffering=0) as source:
                    _hash(source, digest, file.size)
            except OSError:
                self.unread.append(i)
                continue
            asked = {"op": "compare", "i": i, "path": file.path, "mtime": file.mtime}
            yield {**asked, "sha256": digest.hexdigest()}, b""

    def frames(self, files: Iterable[tuple[int, SourceFile, int]]) -> Iterator[Frame]:
        """Yield the frames of each (number, file, bytes of it that the box has already)."""
        for i, file, begun in files:
            put = {"op": "put", "i": i, "path": file.path, "size": file.size, "mtime": file.mtime}
            put |= {"mode": file.mode, "at": begun}
            try:
                source = open(self.path(file), "rb", buffering=0)  # noqa: SIM115 - closed below
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
        """Report the progress, unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._told >= _EVERY_S:
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
