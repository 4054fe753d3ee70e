"""How far a box is with putting a run's results into a bucket (`box/upload_results.py`)."""

from __future__ import annotations

import re
from typing import NamedTuple

from bootstrap.text.sizes import size

_NOTE = re.compile(
    r"(going|failing|left|whole) ([0-9]{1,12}) ([0-9]{1,18}) ([0-9]{1,12}) ([A-Za-z0-9.-]{1,60}) "
    r"(s3://[A-Za-z0-9._+@=/-]{1,400})"
)


class Uploaded(NamedTuple):
    """What is in the bucket, and what is not."""

    word: str
    """going, failing (it goes on trying), left (it has stopped trying), whole."""
    files: int
    bytes: int
    left: int
    """Files that are not there, as they are now."""
    why: str
    """Why it fails: the bucket's own word, `unreachable`, `no-key`; "" where it does not."""
    address: str

    def sentence(self) -> str:
        """For people."""
        there = f"{self.files} files ({size(self.bytes)}) are in {self.address}"
        if self.word == "whole":
            return f"results: {there}"
        if self.word == "going":
            return f"results: {there}; {self.left} more are to come"
        stopped = "; the next setup or run tries again" if self.word == "left" else ""
        return f"results: {there}; {self.left} are not: {self.why or 'still written to'}{stopped}"

    def as_dict(self) -> dict[str, object]:
        """As `--json` prints it."""
        return {**self._asdict(), "why": self.why or None}


def parse_uploaded(note: str) -> Uploaded | None:
    """What the box noted; None where it is no such note."""
    found = _NOTE.fullmatch(note)
    if not found:
        return None
    word, files, bytes_, left, why, address = found.groups()
    known = "" if why == "-" else why
    return Uploaded(word, int(files), int(bytes_), int(left), known, address)
