"""Receive a file block by block; `between` is called while one operation takes long."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from typing import Any

PIECE = 1 << 20  # bytes read at once
SYNC_S = 1.0  # seconds between two calls while waiting for the disk


def sha256_of(path: bytes, between: Callable[[], None]) -> str:
    """Return the SHA-256 of a file. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while True:
            piece = file.read(PIECE)
            if not piece:
                return digest.hexdigest()
            digest.update(piece)
            between()


def sync(file: int, between: Callable[[], None]) -> None:
    """Sync a file to the disk, which may take long for gigabytes. Raises OSError."""
    failed: list[OSError] = []

    def bring() -> None:
        try:
            os.fsync(file)
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=bring, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(SYNC_S)
        between()
    if failed:
        raise failed[0]


class Incoming:
    """A file that is being received. What is already there of it is hashed again."""

    def __init__(self, request: dict[str, Any], part: bytes, between: Callable[[], None]) -> None:
        self.request, self.part, self.between = request, part, between
        self.digest = hashlib.sha256()
        self.mode = request["mode"] & 0o777 | 0o600
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        try:
            self.file = os.open(part, flags | os.O_EXCL, self.mode)
        except FileExistsError:
            self.file = os.open(part, flags)
            os.fchmod(self.file, self.mode)
            os.ftruncate(self.file, request["at"])
            self.take_in(request["at"])

    def take_in(self, rest: int) -> None:
        """Hash what is already there. Raises OSError."""
        while rest > 0:
            piece = os.read(self.file, min(PIECE, rest))
            if not piece:
                break
            self.digest.update(piece)
            rest -= len(piece)
            self.between()

    def write(self, block: bytes) -> None:
        """Append a block. Raises OSError."""
        self.digest.update(block)
        rest = memoryview(block)
        while rest:
            rest = rest[os.write(self.file, rest) :]
