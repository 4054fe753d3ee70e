"""The items of `data:` as the script carries them, and where each belongs on this box."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..step_report import StepError


class DataError(StepError):
    """Ends the fetching of all items. `status`: the server's HTTP status, 0 if there is none."""

    def __init__(self, code: str, sentence: str, status: int = 0) -> None:
        super().__init__(code, sentence)
        self.status = status


class Item(NamedTuple):
    """One item as the script carries it; `number` is its index in the profile."""

    number: int
    source: str
    to: str
    sha256: str
    unpack: bool
    exclude: tuple[tuple[str, bool], ...]
    """Patterns, and whether a match is excluded: the last matching pattern decides."""
    digest: str
    """Digest of the files, if the user's machine sends the item; else empty."""

    @classmethod
    def of(cls, number: int, row: Mapping[str, Any]) -> Item:
        exclude = tuple((str(pattern), bool(away)) for pattern, away in row.get("exclude", ()))
        source, to, sha256, digest = (row.get(k, "") for k in ("from", "to", "sha256", "digest"))
        return cls(number, source, to, sha256, bool(row.get("unpack")), exclude, digest)

    @property
    def asked_for(self) -> str:
        """What the user's machine sends: files (`local`), URLs (`bucket`), or nothing ("")."""
        if self.digest:
            return "local"
        return "" if self.source.startswith(("https:", "hf:")) else "bucket"

    def takes(self, path: str) -> bool:
        away = False
        for pattern, said in self.exclude:
            if re.match(pattern, path):
                away = said
        return not away


class Places(NamedTuple):
    """Folders on this box: boxstrap's, the repository's, and the setup's with the signed URLs."""

    home: Path
    tree: Path
    lists: Path

    def target(self, item: Item) -> Path:
        """Return the path of an item. Raises DataError if it is outside the working folder."""
        target = Path(item.to.rstrip("/")).expanduser()
        target = target if target.is_absolute() else self.tree / target
        real, home = target.resolve(), self.home.resolve()
        # On a box with several working folders, `~/.boxstrap` leads to the first one's.
        roots = {home.parent, self.home.parent.resolve()}
        if roots.isdisjoint(real.parents) or home in (real, *real.parents):
            raise DataError(
                "data-outside", f"{real} is not in the working folder {self.home.parent}"
            )
        return real

    def key(self, item: Item) -> str:
        own = [str(self.target(item)), *item._replace(number=0)]
        return hashlib.sha256(json.dumps(own).encode()).hexdigest()[:32]
