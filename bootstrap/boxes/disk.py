"""A disk that will soon be full, as the box's `disk_watch.py` tells it. Bounded and sanitized."""

from typing import NamedTuple

from bootstrap.link.exchange import answer_number
from bootstrap.onbox.runs.disk_watch import ENOUGH, LOW
from bootstrap.sanitize import one_line
from bootstrap.sizes import duration, size
from bootstrap.value import dataclass

MOST_BYTES, MOST_IN_LINE = 4096, 2300
_MOST_FILES = 5
_LONGEST = 200


class WrittenFile(NamedTuple):
    """A file of a run's tree, by its path below it."""

    path: str
    bytes: int


@dataclass(frozen=True)
class LowDisk:
    """A disk with little room left."""

    free: int
    total: int
    full_in: int | None
    """Seconds until it is full at the rate of the last half hour; None if it isn't filling up."""
    files: tuple[WrittenFile, ...] = ()
    """The largest files of the run's tree that were written in the last hour, with their bytes."""

    def words(self) -> str:
        soon = "" if self.full_in is None else f", full in about {duration(self.full_in)}"
        files = ", ".join(f"{path} {size(count)}" for path, count in self.files)
        newest = f"; written in the last hour: {files}" if files else ""
        return f"low disk: {size(self.free)} of {size(self.total)} free{soon}{newest}"


def is_low(free: int | None, total: int | None) -> bool:
    """Whether so few of so many bytes are low, whatever the rate."""
    return free is not None and total is not None and free < min(total * LOW, ENOUGH)


def parse_low_line(told: str) -> LowDisk | None:
    """Parse the file as a query prints it: its lines with tabs between them."""
    return parse_low_disk(told.replace("\t", "\n").encode("utf-8", "replace"))


def parse_low_disk(told: bytes) -> LowDisk | None:
    head, *rows = told[:MOST_BYTES].decode("utf-8", "replace").splitlines() or [""]
    words = head.split()
    numbers = [answer_number(word) for word in words[:2]]
    if len(words) != 3 or numbers[0] is None or numbers[1] is None:
        return None
    files = []
    for row in rows[:_MOST_FILES]:
        count, _, path = row.partition(" ")
        if path and (number := answer_number(count)) is not None:
            files.append(WrittenFile(one_line(path)[:_LONGEST], number))
    return LowDisk(numbers[0], numbers[1], answer_number(words[2]), tuple(files))
