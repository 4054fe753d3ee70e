"""The manifest of a run's results: path, size and SHA-256 of each file; and which run it was.

One that is read may be of a box, or changed since: `read_manifest` takes it whole, or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

from bootstrap.onbox.lease.safety import safe_note
from bootstrap.onbox.results.run_results import digest_of
from bootstrap.paths import make_private, write_private
from bootstrap.transfer.destination import DEEPEST, LONGEST_PATH, HomeFile
from bootstrap.value import Document, dataclass, document, field

_KEPT = 2
"""Digests remembered for each place: after a power cut in a replacement, either may be there."""
_EVERY_S = 1.0
"""Seconds of what comes that comes again, after a pull that was killed."""
_encode = json.JSONEncoder(separators=(",", ":")).encode


class PulledFile(NamedTuple):
    """A file of a box that is here: its state there, its digest, its place and its state here."""

    state: tuple[int, ...]
    sha256: str
    place: str
    """Path below the folder: its own, or another name next to it."""
    home: HomeFile
    to: str = ""
    """To which of the others a link leads."""


class PulledRecord:
    """The record of one run and one folder. A context manager; the caller holds the folder."""

    def __init__(self, file: Path) -> None:
        """Read it. A damaged line is skipped: its file is pulled again. Raises OSError."""
        self.files: dict[str, PulledFile] = {}
        self._places: dict[tuple[str, str], list[str]] = {}
        self._file = file
        self._new: list[tuple[str, PulledFile]] = []
        self._saved = 0.0
        lines = list[bytes]()
        with contextlib.suppress(FileNotFoundError):
            lines = file.read_bytes().split(b"\n")
        rows = [*_rows_in(lines)]
        for row in rows:
            with contextlib.suppress(ValueError, TypeError):
                self._take(row)
        if len(rows) > 2 * len(self.files) + 1000:
            self._rewrite()
        make_private(file.parent)
        self._out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        if lines:
            self._write(b"\n")  # the last line may have been cut

    def __enter__(self) -> PulledRecord:
        return self

    def __exit__(self, *_: object) -> None:
        self.save()
        os.close(self._out)

    def _take(self, row: Sequence[object]) -> None:
        path, state, sha256, place, home, *to = row
        if not (isinstance(path, str) and isinstance(sha256, str) and isinstance(place, str)):
            return
        if isinstance(state, list) and isinstance(home, list):
            led = map(str, to)
            self._put(path, PulledFile(tuple(state), sha256, place, HomeFile(*home), *led))
        else:
            self._keep(path, sha256, place)

    def _put(self, path: str, pulled: PulledFile) -> None:
        if before := self.files.get(path):
            self._keep(path, before.sha256, before.place)
        self.files[path] = pulled

    def _keep(self, path: str, sha256: str, place: str) -> None:
        kept = self._places.setdefault((path, place), [])
        if sha256 not in kept:
            self._places[path, place] = [*kept, sha256][-_KEPT:]

    def ours(self, path: str, place: str) -> Collection[str]:
        """Return digests of what was put at `place` for `path`: other files may have that path."""
        one = self.files.get(path)
        now = (one.sha256,) if one and one.place == place else ()
        return (*self._places.get((path, place), ()), *now)

    def will_replace(self, path: str, sha256: str, place: str) -> None:
        """Note what is about to replace an earlier pulled file. Raises OSError."""
        self._keep(path, sha256, place)
        self.save()
        self._write(_line_of([path, None, sha256, place, None]))

    def add(self, path: str, pulled: PulledFile) -> None:
        """Note a file that has landed here; of one that `save` had no time for the same content is
        found there. Raises OSError."""
        self._put(path, pulled)
        self._new.append((path, pulled))
        if time.monotonic() - self._saved > _EVERY_S:
            self.save()

    def save(self) -> None:
        """Write what was noted. Raises OSError."""
        if self._new:
            self._write(_line_of(*(_row_of(*one) for one in self._new)))
        self._new.clear()
        self._saved = time.monotonic()

    def _write(self, line: bytes) -> None:
        try:
            os.write(self._out, line)
        except OSError as error:
            error.filename = os.fspath(self._file)  # it is not the folder that receives the files
            raise

    def _rewrite(self) -> None:
        write_private(self._file, _line_of(*(_row_of(*one) for one in self.files.items())))


def _rows_in(lines: Iterable[bytes]) -> Iterator[Any]:
    """Yield the rows of all lines, each the rows of a `save`; a damaged line is skipped."""
    for line in lines:
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            yield from (row for row in json.loads(line) if isinstance(row, list))


def _row_of(path: str, one: PulledFile) -> list[object]:
    return [path, *one[: 5 if one.to else 4]]


def _line_of(*rows: list[object]) -> bytes:
    return f"{_encode(rows)}\n".encode()


def recorded_digests(file: Path) -> dict[str, set[str]]:
    """Return the digests of what pulls put, or were about to put, to each path of their folder."""
    found: dict[str, set[str]] = {}
    with contextlib.suppress(OSError):
        for row in _rows_in(file.read_bytes().split(b"\n")):
            with contextlib.suppress(ValueError, TypeError):
                path, _, sha256, place, *_ = row
                if path == place:
                    found.setdefault(path, set()).add(sha256)
    return found


VERSION = 1
MOST_MANIFEST = 256 * 1024 * 1024
"""Bytes of a manifest that is read."""
_MOST_LISTED = 1_000_000
_MOST_SIZE = 1 << 60
_SHA256 = re.compile(r"[0-9a-f]{64}")


class ListedFile(NamedTuple):
    """A file as a manifest has it; `size` is 0 if it has none."""

    path: str
    sha256: str
    size: int
    here: bool
    """Whether it has its own name here."""
    to: str = ""
    """To which path a link leads."""


@dataclass(frozen=True)
class ListedResults:
    """What a manifest says, which a box may have written: checked, and not believed."""

    files: Mapping[str, ListedFile]
    missing: Mapping[str, str]
    live: bool
    ended: str
    origin: tuple[object, ...] = ()
    """Box, repository and run, as `RunOrigin`."""


NOTHING_LISTED = ListedResults({}, {}, live=False, ended="")


def read_manifest(text: bytes) -> ListedResults:
    """Return what a manifest says. Raises ValueError with what is wrong in it."""
    try:
        document = json.loads(text[: MOST_MANIFEST + 1])
    except RecursionError:
        raise ValueError("it is too deep") from None
    match document:
        case {"files": list(rows)} if len(rows) <= _MOST_LISTED:
            files = {one.path: one for one in map(_listed, rows)}
        case _:
            raise ValueError("it has no list of files")
    if len(files) != len(rows):
        raise ValueError("it lists a file twice")
    for path in files:
        while path := path.rpartition("/")[0]:
            if path in files:
                raise ValueError("it lists a file below another one")
    missing = document.get("missing", {})
    if not (isinstance(missing, dict) and all(isinstance(why, str) for why in missing.values())):
        raise ValueError("what is missing is no list of names and reasons")
    live, ended = document.get("live") is True, document.get("ended")
    origin = tuple(document.get(name) for name in ("box", "repository", "run"))
    return ListedResults(files, missing, live, ended if isinstance(ended, str) else "", origin)


def _listed(row: object) -> ListedFile:
    # There are many: `match` takes twice as long.
    of = row if isinstance(row, dict) else {}
    path, sha256, size, to = map(of.get, ("path", "sha256", "size", "link"), (None, None, 0, ""))
    if (
        [*map(type, (path, sha256, size, to))] == [str, str, int, str]
        and max(len(path), len(to)) <= LONGEST_PATH
        and path.count("/") < DEEPEST
        and _SHA256.fullmatch(sha256)
        and 0 <= size < _MOST_SIZE
    ):
        return ListedFile(path, sha256, size, "here" not in of, to)
    raise ValueError("it describes a file without a path, a size or a digest")


@dataclass(frozen=True)
class RunOrigin(Document):
    """The run that results are from."""

    KEYS = "box, repository, run, commit, snapshot or None, with_changes, command, profile or None"

    box: str
    repository: str
    """Its key on the box."""
    run: str
    commit: str = ""
    snapshot: str = ""
    """The snapshot of its files: the commit with the changes on it."""
    command: str = ""
    profile: str = ""
    """The digest of the profile that started it; "" from earlier versions."""

    @property
    def with_changes(self) -> bool:
        """Whether it ran with changes that are not in its commit."""
        return self.snapshot not in ("", self.commit)


@dataclass(frozen=True)
class Manifest:
    """The results of a run that are here."""

    origin: RunOrigin
    results: Sequence[str]
    files: Mapping[str, PulledFile]
    """By path on the box; in order, what is written of many takes half as long."""
    on_box: frozenset[str]
    """Those that were on the box at the last look; the others were removed there."""
    made: Set[str] = frozenset()
    """Those that the run made. Others were put to its results by no run, and come with the last."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """What has no content to pull, and why."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """What is not here, and why."""
    never: Sequence[str] = ()
    """Those of the missing that no other pull brings either; not sanitized."""
    without: Sequence[str] = ()
    """Paths and patterns of results that the user lets go of; not sanitized."""
    live: bool = False
    """Whether the run was still running."""

    def text(self) -> str:
        """Return the document, as it is saved here."""
        whole = {
            "v": VERSION,
            **document(self.origin),
            "live": self.live,
            "complete": not self.missing,
            "results": list(self.results),
            "files": [],
            "left_out": dict(self.left_out),
            "missing": dict(self.missing),
            "without": list(self.without),
        }
        # All rows in one call, and then a line each: `indent` makes Python write them, which takes
        # ten times as long. In a name a quote would have a backslash before it.
        rows = json.dumps([self._row(path) for path in sorted(self.files)])
        rows = rows.replace('}, {"path": ', '},\n  {"path": ')
        return json.dumps(whole, indent=1).replace('"files": []', f'"files": {rows}', 1) + "\n"

    def _row(self, path: str) -> dict[str, object]:
        one = self.files[path]
        row: dict[str, object] = {"path": path, "size": one.home.size, "sha256": one.sha256}
        if one.to:
            row["link"] = one.to
        if one.place != path:
            row["here"] = one.place
        if path not in self.on_box:
            row["on_box"] = False
        if path not in self.made:
            row["after_run"] = True
        return row

    def present(self) -> dict[str, tuple[int, str]]:
        """Return size and digest of each file that is on the box."""
        return {
            path: (one.home.size, one.sha256)
            for path, one in self.files.items()
            if path in self.on_box
        }

    def proven(self) -> dict[str, PulledFile]:
        """Return each file that is on the box, or that the run made and the box has no more."""
        proven = self.on_box | self.made
        return {path: one for path, one in self.files.items() if path in proven}

    def home_note(self) -> str:
        """Return the digest of all that the run made, by which the box knows that it is here."""
        return digest_of({path: one.state for path, one in self.files.items() if path in self.made})

    def safe_note(self) -> str:
        """Return what the box may note about the run if all its files there are here."""
        return safe_note(self.present())
