"""Find out which files any process of this machine has open for writing; for Python 3.8."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator


def held_files(wanted: set[tuple[int, int]], proc: str = "/proc") -> set[tuple[int, int]]:
    """Return those of `wanted` that a process has open, or mapped, for writing.

    A process that may not be inspected counts as having none.
    """
    held: set[tuple[int, int]] = set()
    for pid in _names(proc):
        if pid.isdigit():
            held.update(file for file in _written_by(f"{proc}/{pid}", wanted))
    return held


def has_open(process: int, file: tuple[int, int], proc: str = "/proc") -> bool:
    """Return whether this process has that file open."""
    folder = f"{proc}/{process}/fd"
    return any(_file_at(f"{folder}/{number}") == file for number in _names(folder))


def _written_by(process: str, wanted: set[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for number in _names(f"{process}/fd"):
        file = _file_at(f"{process}/fd/{number}")
        if file in wanted and _is_for_writing(_read(f"{process}/fdinfo/{number}")):
            yield file
    for line in _read(f"{process}/maps").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[1][1:2] == "w" and fields[1][3:4] == "s":
            file = _file_at(fields[5])
            if file in wanted:
                yield file


def _file_at(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (-1, -1)
    return (found.st_dev, found.st_ino)


def _is_for_writing(fdinfo: str) -> bool:
    flags = re.search(r"^flags:\s*([0-7]+)", fdinfo, re.MULTILINE)
    return bool(flags) and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY  # type: ignore[index]


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
