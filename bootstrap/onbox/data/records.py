"""Records of fetched and of pushed files: their sizes and times show that they are there, without
reading."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ..run_folder import write_whole


class PlacedFile(NamedTuple):
    """A file as it was when it was placed."""

    path: str
    size: int
    mtime_ns: int

    @property
    def is_there(self) -> bool:
        """Whether it is unchanged, by size and time."""
        return placed(self.path) == self


class DataRecord(NamedTuple):
    """The files of a fetched item; `target` is the item's path."""

    target: str
    files: tuple[PlacedFile, ...]


def placed(path: str) -> PlacedFile | None:
    """Return the file that is at `path` now; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return PlacedFile(path, found.st_size, found.st_mtime_ns)


def sent_files(home: Path, target: Path) -> tuple[PlacedFile, ...]:
    """Return the unchanged files that transfers put at `target`, a folder or a file."""
    return tuple(_sent(home, target))


def sent_content(home: Path, target: Path) -> dict[str, str]:
    """Return the SHA-256 of each of these files, by its path."""
    return {file.path: sha256 for file, sha256 in _sent(home, target).items()}


def _sent(home: Path, target: Path) -> dict[PlacedFile, str]:
    found = {}
    for folder in (target, target.parent):
        key = hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]
        with contextlib.suppress(OSError), (home / "data" / f"{key}.jsonl").open("rb") as lines:
            for line in lines:
                with contextlib.suppress(ValueError, TypeError):
                    name, size, mtime_ns, _, sha256 = json.loads(line)
                    path = folder / name
                    if target in (path, *path.parents):
                        file = PlacedFile(str(path), int(size), int(mtime_ns))
                        found[str(path)] = file, str(sha256)
    return {file: sha256 for file, sha256 in found.values() if file.is_there}


def pushed_files(records: Path, main: Path, *, unchanged: bool = False) -> Iterator[Path]:
    """Yield the pushed files below `main` that are there, relative to it."""
    seen = set()
    for record in sorted(records.glob("*.jsonl")):
        folder = None
        with record.open("rb") as lines:
            for line in lines:
                try:
                    row = json.loads(line)
                except ValueError:  # a line that was cut off
                    continue
                if isinstance(row, dict):
                    folder = Path(str(row.get("target", "")))
                    if main not in (folder, *folder.parents):
                        break
                elif folder is not None and row:
                    file = folder / str(row[0])
                    found = placed(str(file))
                    if file in seen or found is None or (unchanged and [*found[1:]] != row[1:3]):
                        continue  # a later line may know it
                    seen.add(file)
                    yield file.relative_to(main)


class DataRecords:
    """The records of a box, in its home; `current` has the keys of the profile's items."""

    def __init__(self, home: Path, current: set[str]) -> None:
        self._folder = home / "data"
        self._current = current

    def is_right(self, key: str) -> bool:
        """Return whether the item with this key is completely there."""
        record = self.read(key)
        return (
            record is not None
            and os.path.lexists(record.target)
            and all(file.is_there for file in record.files)
        )

    def read(self, key: str) -> DataRecord | None:
        return self._read(self._path(key))

    def earlier(self, target: str) -> dict[str, PlacedFile]:
        """Return the unchanged files that earlier items put at `target`."""
        found = {}
        for path in sorted(self._folder.glob("fetched-*.json")):
            record = self._read(path)
            if record and record.target == target and path.name[8:-5] not in self._current:
                found.update({file.path: file for file in record.files if file.is_there})
        return found

    def forget(self, key: str) -> None:
        """Forget an item that is there, but not that its files are ours."""
        record = self.read(key)
        if record is not None:
            ours = {file.path for file in record.files if file.is_there}
            self.begin(key, ours)
            self._path(key).unlink()

    def begin(self, key: str, places: set[str]) -> None:
        """Note that free paths are about to be filled: after a kill, files there are ours."""
        self._write(self._begun(key), sorted(places | self.begun(key)))

    def begun(self, key: str) -> set[str]:
        """Return the paths of an item whose fetching was interrupted."""
        try:
            return set(map(str, json.loads(self._begun(key).read_text(encoding="utf-8"))))
        except (OSError, ValueError, TypeError):
            return set()

    def keep(self, key: str, record: DataRecord) -> None:
        """Save a record, and delete earlier ones of the same target."""
        for path in self._folder.glob("fetched-*.json"):
            old = self._read(path)
            if old is None or (
                old.target == record.target and path.name[8:-5] not in self._current
            ):
                path.unlink()
        self._write(self._path(key), {"v": 1, **record._asdict()})
        with contextlib.suppress(OSError):
            self._begun(key).unlink()

    def _write(self, path: Path, kept: object) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, json.dumps(kept))

    def _path(self, key: str) -> Path:
        return self._folder / (f"fetched-{key}.json")

    def _begun(self, key: str) -> Path:
        return self._folder / (f"begun-{key}.json")

    @staticmethod
    def _read(path: Path) -> DataRecord | None:
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            files = tuple(PlacedFile(str(p), int(s), int(t)) for p, s, t in kept["files"])
            return DataRecord(str(kept["target"]), files)
        except (OSError, ValueError, TypeError, KeyError):
            return None
