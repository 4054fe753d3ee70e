"""A record of what pulls of one run put into one folder here: a line for each landed file."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from bootstrap.paths import write_private
from bootstrap.transfer.landing import HomeFile

_KEPT = 2
"""Digests remembered for each place: after a power cut in a replacement, either may be there."""


class PulledFile(NamedTuple):
    """A file of a box that is here: its state there, its digest, its place and its state here."""

    state: tuple[int, ...]
    sha256: str
    place: str
    """Path below the folder: its own, or another name next to it."""
    home: HomeFile


class PulledRecord:
    """The record of one run and one folder. A context manager; the caller holds the folder."""

    def __init__(self, file: Path) -> None:
        """Read it. A damaged line is skipped: its file is pulled again. Raises OSError."""
        self.files: dict[str, PulledFile] = {}
        self._places: dict[tuple[str, str], list[str]] = {}
        self._file = file
        lines = 0
        with contextlib.suppress(FileNotFoundError):
            for line in file.read_bytes().split(b"\n"):
                lines += 1
                with contextlib.suppress(ValueError, TypeError, RecursionError):
                    self._take(json.loads(line))
        if lines > 2 * len(self.files) + 1000:
            self._rewrite()
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if lines:
            os.write(self._out, b"\n")  # the last line may have been cut

    def __enter__(self) -> PulledRecord:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)

    def _take(self, row: Sequence[object]) -> None:
        path, state, sha256, place, home = row
        if not (isinstance(path, str) and isinstance(sha256, str) and isinstance(place, str)):
            return
        kept = self._places.setdefault((path, place), [])
        if sha256 not in kept:
            self._places[path, place] = [*kept, sha256][-_KEPT:]
        if isinstance(state, list) and isinstance(home, list):
            self.files[path] = PulledFile(tuple(state), sha256, place, HomeFile(*home))

    def ours(self, path: str, place: str) -> Collection[str]:
        """Return digests of what was put at `place` for `path`: other files may have that path."""
        return self._places.get((path, place), ())

    def will_replace(self, path: str, sha256: str, place: str) -> None:
        """Note what is about to replace an earlier pulled file. Raises OSError."""
        self._write([path, None, sha256, place, None])

    def add(self, path: str, pulled: PulledFile) -> None:
        """Note a file that has landed here. Raises OSError."""
        self._write([path, [*pulled.state], pulled.sha256, pulled.place, [*pulled.home]])

    def _write(self, row: list[object]) -> None:
        self._take(row)
        os.write(self._out, json.dumps(row, separators=(",", ":")).encode() + b"\n")

    def _rewrite(self) -> None:
        rows = [
            [path, [*one.state], one.sha256, one.place, [*one.home]]
            for path, one in self.files.items()
        ]
        write_private(self._file, "".join(f"{json.dumps(row)}\n" for row in rows))
