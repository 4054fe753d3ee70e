"""What the kernel says of processes: is a recorded one still the same, and who has a file open?
Numbers are used again, so a record has number, start and boot, as `templates/lib/process.sh` writes
it. All else here asks this module.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # without importing it: this is loaded as each run starts
    from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "none"


class ProcessStat:
    """What the kernel says of a process: proc(5), `stat`. CPU time and start are in ticks."""

    def __init__(self, fields: list[str]) -> None:
        self.state, self.parent = fields[0], fields[1]
        self.session = fields[3]
        self.cpu = int(fields[11]) + int(fields[12])
        self.start = fields[19]


def stat_of(number: str) -> ProcessStat | None:
    """Return what is said of it; None if there is no such process.

    A program gives itself its name, which may contain anything: the fields come after it.
    """
    try:
        with open(f"/proc/{int(number)}/stat", "rb") as file:
            return ProcessStat(file.read().rpartition(b")")[2].decode("ascii").split())
    except (OSError, ValueError, IndexError):  # it ended just now
        return None


def identity(number: int) -> str:
    """Return what is recorded of a process; "" if there is none."""
    stat = stat_of(str(number))
    return f"{number} {stat.start} {boot_id()}" if stat else ""


def is_alive(process: str) -> bool:
    """Return whether a recorded process runs and is no zombie."""
    number, start, boot = [*process.split(), "", "", ""][:3]
    stat = stat_of(number)
    return stat is not None and (stat.start, boot_id()) == (start, boot) and stat.state != "Z"


def forget_locale() -> None:
    """Take back the variable that Python sets in the C locale (PEP 538): no training is to see
    it."""
    with open("/proc/self/environ", "rb") as file:
        if b"LC_CTYPE" not in (pair.partition(b"=")[0] for pair in file.read().split(b"\0")):
            os.environ.pop("LC_CTYPE", None)


def begin_apart(*words: str) -> list[Any]:
    """Start a program that outlives this one, with no input and output; none if it isn't there."""
    from subprocess import DEVNULL, Popen  # slow to import

    with suppress(OSError):
        return [Popen(words, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True)]
    return []


def held_files(wanted: set[tuple[int, int]], proc: str = "/proc") -> set[tuple[int, int]]:
    """Return those of `wanted` that a process has open, or mapped, for writing.

    A process that may not be inspected counts as having none.
    """
    held: set[tuple[int, int]] = set()
    for pid in _names(proc):
        if pid.isdigit():
            held.update(_written_by(f"{proc}/{pid}", wanted))
    return held


def has_open(process: int, file: tuple[int, int]) -> bool:
    folder = f"/proc/{process}/fd"
    return any(file_at(f"{folder}/{number}") == file for number in _names(folder))


def _written_by(process: str, wanted: set[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for number in _names(f"{process}/fd"):
        file = file_at(f"{process}/fd/{number}")
        if file in wanted and _is_for_writing(_read(f"{process}/fdinfo/{number}")):
            yield file
    for line in _read(f"{process}/maps").splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[1][1:2] == "w" and fields[1][3:4] == "s":
            file = file_at(fields[5])
            if file in wanted:
                yield file


def file_at(path: str) -> tuple[int, int]:
    """Return which file that is, in this boot."""
    try:
        found = os.stat(path)
    except OSError:
        return (-1, -1)
    return (found.st_dev, found.st_ino)


def _is_for_writing(fdinfo: str) -> bool:
    flags = [line[6:] for line in fdinfo.splitlines() if line.startswith("flags:")]
    return any(int(each, 8) & os.O_ACCMODE != os.O_RDONLY for each in flags)


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
