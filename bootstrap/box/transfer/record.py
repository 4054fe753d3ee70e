"""Record of what transfers put into a folder: a line for each file, appended soon after it came.

A file is ours while it has the size and time with which it was put there.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import NamedTuple

from .frames import decoded_name


class KnownFile(NamedTuple):
    """A file that was put there: its size and time there, and its time at the source."""

    size: int
    mtime: int
    source_mtime: int
    sha256: str


class TargetRecord:
    """The record of one target folder, kept in `folder`; for one process at a time."""

    def __init__(self, folder: bytes, target: bytes) -> None:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        key = hashlib.sha256(target).hexdigest()[:32]
        self.path = os.path.join(folder, key.encode() + b".jsonl")
        self.lock = os.path.join(folder, key.encode() + b".lock")
        self.files: dict[str, KnownFile] = {}
        self._target = target
        self._lines = 0
        self._file = -1
        self._held: list[bytes] = []

    def load(self) -> None:
        """Read the record; a line that was cut off is skipped."""
        try:
            with open(self.path, "rb") as file:
                for line in file:
                    self._take(line)
        except FileNotFoundError:
            pass
        if self._lines > 2 * len(self.files) + 1000:
            self._rewrite()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(self.path, flags, 0o600)
        os.write(self._file, b"\n" if self._lines else self._head())

    def _take(self, line: bytes) -> None:
        self._lines += 1
        try:
            path, *known = json.loads(line)
            self.files[path] = KnownFile(*known)
        except (ValueError, TypeError):
            pass

    def _head(self) -> bytes:
        """Return a line that names the target, for human readers."""
        return json.dumps({"target": decoded_name(self._target)}).encode() + b"\n"

    def _rewrite(self) -> None:
        new = self.path + b".new"
        with open(new, "wb") as file:
            file.write(self._head())
            for path, known in self.files.items():
                file.write(json.dumps([path, *known]).encode() + b"\n")
        os.rename(new, self.path)

    def add(self, path: str, known: KnownFile) -> None:
        """Add a file that is there now; `write` saves it."""
        self.files[path] = known
        self._held.append(json.dumps([path, *known]).encode() + b"\n")

    def write(self) -> None:
        """Append what was added to the record's file. Raises OSError."""
        if self._held:
            os.write(self._file, b"".join(self._held))
            self._held = []
