"""Copy distributions into another environment of the same interpreter, by their RECORDs.

Programs in `bin` get the new interpreter in their first line, and RECORD their new hashes. Bytecode
next to a module is copied too, and stays valid since modification times are kept. A distribution
is skipped if any of its files is missing, of another size, or outside its environment.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from .image_packages import Distribution, record

WORKERS = min(8, os.cpu_count() or 1)
AT_ONCE = 200  # files that a worker takes at a time
PIECE = 1 << 20  # bytes in one read
LONGEST_FIRST_LINE = 127  # bytes of a `#!` line that every kernel reads
SAMPLES, SAMPLE = 32, 1 << 16  # number of samples, and bytes of each
EVERY = 64 * 10**6  # bytes between two reports
TO_PYTHON = re.compile(rb"\A#![^\n]*python[^\n]*\n")
BY_SHELL = re.compile(rb"\A#!/bin/sh\n'''exec' [^\n]*python[^\n]*\n' '''\n")


class CopiedFile(NamedTuple):
    """A file to copy: source path, target path, size in bytes."""

    source: str
    target: str
    size: int


class Copying(NamedTuple):
    """The distributions and files to copy into the site-packages folder `site`."""

    taken: list[Distribution]
    files: list[CopiedFile]
    site: Path

    @classmethod
    def of(cls, found: Iterable[Distribution], site: Path) -> Copying:
        """Select the distributions that can be copied whole, with their files."""
        taken, files = [], {}
        for one in found:
            own = files_of(one, site)
            if own:
                taken.append(one)
                # Several may bring the same file, such as `nvidia/__init__.py`: one copy is enough.
                files.update({file.target: file for file in own})
        return cls(taken, list(files.values()), site)

    @property
    def size(self) -> int:
        """Return the total size in bytes."""
        return sum(file.size for file in self.files)

    def wheel_size(self) -> int:
        """Estimate the bytes of their wheels, by compressing samples.

        Bytecode doesn't count, since wheels have none. Raises OSError.
        """
        files = [file for file in self.files if not file.source.endswith(".pyc")]
        total = sum(file.size for file in files)
        at, before, read, packed = total / SAMPLES / 2, 0, 0, 0
        for file in files:
            while at < before + file.size:
                with Path(file.source).open("rb") as source:
                    source.seek(int(at) - before)
                    piece = source.read(SAMPLE)
                read, packed = read + len(piece), packed + len(zlib.compress(piece))
                at += total / SAMPLES
            before += file.size
        return total * packed // max(1, read)

    def run(self, report: Callable[[int], None]) -> None:
        """Copy the files, and report the bytes copied so far from time to time.

        Raises OSError, after removing all files that were copied.
        """
        for folder in sorted({os.path.dirname(file.target) for file in self.files}):  # noqa: PTH120
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - tens of thousands: str is faster
        done = told = 0
        some = [self.files[at : at + AT_ONCE] for at in range(0, len(self.files), AT_ONCE)]
        try:
            with ThreadPoolExecutor(WORKERS) as pool:
                for size in pool.map(copy_files, some):
                    done += size
                    if done - told >= EVERY:
                        told = done
                        report(done)
            self._renew_programs()
        except OSError:
            for file in self.files:
                Path(file.target).unlink(missing_ok=True)
            raise

    def _renew_programs(self) -> None:
        """Make programs start the new environment's interpreter, and update their RECORDs."""
        programs = self.site.parents[2] / "bin"
        renewed: dict[str, tuple[str, int]] = {}
        for file in self.files:
            if Path(file.target).parent == programs:
                text = Path(file.target).read_bytes()
                new = with_interpreter(text, str(programs / "python"))
                if new != text:
                    Path(file.target).write_bytes(new)
                    renewed[os.path.relpath(file.target, self.site)] = digest(new), len(new)
        for one in self.taken:
            if any(row.path in renewed for row in record(one.info)):
                renew_record(self.site / one.info.name / "RECORD", renewed)


def files_of(found: Distribution, site: Path) -> list[CopiedFile]:
    """Return a distribution's files and their bytecode; none if it can't be copied whole."""
    root, target_root = str(found.root), str(site.parents[2])
    files, sources = [], set()
    for row in record(found.info):
        source = os.path.normpath(os.path.join(found.site, row.path))  # noqa: PTH118 - see above
        inside = source.startswith(f"{found.site}/")
        if os.path.isabs(row.path) or not (inside or source.startswith(f"{root}/")):  # noqa: PTH117
            return []
        if "/__pycache__/" in source:
            continue  # added below, whether RECORD lists it or not
        try:
            size = os.stat(source).st_size  # noqa: PTH116
        except OSError:
            return []
        if (row.size is not None and row.size != size) or not may_read(source):
            return []
        at, to = (str(found.site), str(site)) if inside else (root, target_root)
        files.append(CopiedFile(source, to + source[len(at) :], size))
        if inside and source.endswith(".py"):
            sources.add(source[:-3])
    return files + bytecode_of(sources, str(found.site), str(site))


def may_read(file: str) -> bool:
    """Return whether this user may read a file; root always may."""
    return os.geteuid() == 0 or os.access(file, os.R_OK)


def bytecode_of(modules: set[str], site: str, target: str) -> list[CopiedFile]:
    """Return the bytecode files of modules, which are given as paths without `.py`."""
    files = []
    for folder in {os.path.dirname(module) for module in modules}:  # noqa: PTH120
        try:
            with os.scandir(f"{folder}/__pycache__") as entries:
                for entry in entries:
                    module = f"{folder}/{entry.name.partition('.')[0]}"
                    if module in modules and entry.name.endswith(".pyc") and entry.is_file():
                        to = target + entry.path[len(site) :]
                        files.append(CopiedFile(entry.path, to, entry.stat().st_size))
        except OSError:
            continue  # nothing in it was imported yet
    return files


def copy_files(files: list[CopiedFile]) -> int:
    """Copy files and return their total bytes. Raises OSError."""
    return sum(map(copy_file, files))


def copy_file(file: CopiedFile) -> int:
    """Copy content, mode and times, and return the bytes. Raises OSError."""
    # With tens of thousands of small files each call counts: shutil takes three times as long.
    source = os.open(file.source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        state = os.fstat(source)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        target = os.open(file.target, flags, state.st_mode & 0o777 | 0o200)
        try:
            copy_content(source, target, state.st_size)
            os.utime(target, ns=(state.st_atime_ns, state.st_mtime_ns))
        finally:
            os.close(target)
    finally:
        os.close(source)
    return file.size


def copy_content(source: int, target: int, size: int) -> None:
    """Copy `size` bytes between two file descriptors. Raises OSError."""
    while size:
        piece = os.read(source, min(size, PIECE))
        if not piece:
            raise OSError("a file was truncated while it was being copied")
        size -= len(piece)
        while piece:
            piece = piece[os.write(target, piece) :]


def with_interpreter(text: bytes, python: str) -> bytes:
    """Return a Python script with this interpreter; any other program is unchanged."""
    found = BY_SHELL.match(text) or TO_PYTHON.match(text)
    if not found:
        return text
    return first_lines(python) + text[found.end() :]


def first_lines(python: str) -> bytes:
    """Return what pip and uv write: sh starts an interpreter whose path is long or has a space."""
    if len(python) + 3 <= LONGEST_FIRST_LINE and " " not in python:
        return f"#!{python}\n".encode()
    return f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n".encode()


def digest(content: bytes) -> str:
    """Return the SHA-256 as RECORD writes it."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def renew_record(file: Path, renewed: dict[str, tuple[str, int]]) -> None:
    """Put new hashes and sizes into a RECORD."""
    with file.open(encoding="utf-8", newline="") as text:
        rows = [row for row in csv.reader(text) if row]
    for row in rows:
        if row[0] in renewed:
            sha, size = renewed[row[0]]
            row[1:] = [f"sha256={sha}", str(size)]
    with file.open("w", encoding="utf-8", newline="") as text:
        csv.writer(text, lineterminator="\n").writerows(rows)
