"""List what is sent of a file or a folder here: each file with its path, size and time."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bootstrap.box.transfer.frames import decoded_name
from bootstrap.errors import UsageError
from bootstrap.paths import real

PARTS = ".boxstrap-parts"
"""The folder of incomplete files."""


class SourceFile(NamedTuple):
    """One file, with its path below the source's root, as in frames."""

    path: str
    size: int
    mtime: int
    """Nanoseconds."""
    mode: int


@dataclass
class SourceFiles:
    """All that is sent, and what is not."""

    root: Path
    files: list[SourceFile] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)
    """Empty folders."""
    left_out: list[str] = field(default_factory=list)
    """What can't be sent, each with its reason in words."""

    @property
    def bytes(self) -> int:
        """Total size of all files."""
        return sum(file.size for file in self.files)


def read_source(source: Path, exclude: Sequence[str] = ()) -> SourceFiles:
    """List everything at `source`, without what `exclude` names in `.gitignore` style.

    A link is followed if it leads to something in the source. Raises UsageError if there is
    nothing to read, or a pattern is invalid.
    """
    try:
        found = source.stat()
        if stat.S_ISREG(found.st_mode):
            files = SourceFiles(source.parent)
            files.files.append(_file(decoded_name(os.fsencode(source.name)), found))
            return files
        if not stat.S_ISDIR(found.st_mode):
            raise UsageError("only files and folders can be sent.", where=str(source))
        walk = _Walk(SourceFiles(source), _excluding(exclude))
        walk.folder(source, "", (real(source),))
    except OSError as error:
        raise UsageError(
            f"it can't be read: {(error.strerror or str(error)).lower()}.",
            where=str(error.filename or source),
        ) from None
    return walk.found


def _excluding(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Return a function that says whether a path is excluded; a folder's path ends in a slash."""
    if not patterns:
        return lambda _path: False
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(patterns).match_file
    except ValueError as error:
        raise UsageError(f"not a .gitignore pattern: {error}", where="exclude") from None


def _file(path: str, found: os.stat_result) -> SourceFile:
    return SourceFile(path, found.st_size, found.st_mtime_ns, stat.S_IMODE(found.st_mode))


class _Walk:
    def __init__(self, found: SourceFiles, excludes: Callable[[str], bool]) -> None:
        self.found = found
        self._excludes = excludes
        self._root = real(found.root)

    def folder(self, folder: Path, path: str, above: tuple[Path, ...]) -> None:
        """List a folder. `above`: the folders around it, to detect links in a circle."""
        count = 0
        with os.scandir(folder) as entries:
            ordered = sorted(entries, key=lambda entry: os.fsencode(entry.name))
        for entry in ordered:
            count += 1
            self._entry(entry, f"{path}{decoded_name(os.fsencode(entry.name))}", above)
        if not count and path:
            self.found.empty.append(path.rstrip("/"))

    def _entry(self, entry: os.DirEntry[str], path: str, above: tuple[Path, ...]) -> None:
        is_folder = entry.is_dir()
        if entry.name == PARTS or self._excludes(f"{path}/" if is_folder else path):
            return
        try:
            if entry.is_symlink() and not real(Path(entry)).is_relative_to(self._root):
                self._leave_out(path, "a link that leads out of the folder")
            elif is_folder and real(Path(entry)) in above:
                self._leave_out(path, "a link to a folder that it is in")
            elif is_folder:
                self.folder(Path(entry), f"{path}/", (*above, real(Path(entry))))
            elif entry.is_file():
                self.found.files.append(_file(path, entry.stat()))
            else:
                self._leave_out(path, "no file: a broken link, a pipe, a socket or a device")
        except OSError as error:
            self._leave_out(path, (error.strerror or str(error)).lower())

    def _leave_out(self, path: str, why: str) -> None:
        self.found.left_out.append(f"{path}: {why}")
