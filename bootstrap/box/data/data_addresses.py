"""URLs of a bucket's objects, signed by the user's machine: each opens one object for an hour."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .data_sources import DataFile
from .data_words import DataError, say

PATIENCE_S = 600
REFUSED = frozenset({400, 401, 403})
"""Statuses with which servers reject a URL that has expired, or whose signer's login has."""


class Addresses:
    """The signed URLs of one setup, for several threads; expired ones are requested again."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "data.addresses"
        self._lock = threading.Lock()
        self._rows: dict[int, dict[str, Any]] = {}

    def files_of(self, number: int) -> Iterator[DataFile]:
        """Yield the objects of an item. Raises DataError if no URLs arrive."""
        with self._lock:
            if not self._rows:
                self._ask()
            rows = self._rows.get(number, {})
        for path, row in rows.items():
            size, tag, alone = int(row["size"]), str(row["etag"]), bool(row["alone"])
            yield DataFile("", path, size, tag=tag, is_alone=alone, signed_of=number)

    def current(self, wanted: DataFile) -> str:
        """Return the current URL of a file."""
        with self._lock:
            return str(self._rows[wanted.signed_of][wanted.path]["url"])

    def renewed(self, wanted: DataFile, refused: str) -> str:
        """Return a newer URL than the refused one. Raises DataError if none arrives."""
        if self.current(wanted) == refused:
            with self._lock:
                if self._rows[wanted.signed_of][wanted.path]["url"] == refused:
                    self._ask()
        return self.current(wanted)

    def _ask(self) -> None:
        say("wait data-addresses")
        until = time.monotonic() + (PATIENCE_S if os.environ.get("CLIENT_SENDS") else 0)
        while not self._file.exists():
            if time.monotonic() > until:
                raise DataError("data-missing", "no signed URLs arrived from your machine")
            time.sleep(0.1)
        rows: dict[int, dict[str, Any]] = {}
        with self._file.open(encoding="utf-8") as lines:
            self._file.unlink()
            for line in lines:
                if line != "end\n":
                    row = json.loads(line)
                    rows.setdefault(int(row["item"]), {})[str(row["path"])] = row
        if not rows:
            raise DataError("data-missing", "your machine could not sign any URL")
        self._rows = rows
