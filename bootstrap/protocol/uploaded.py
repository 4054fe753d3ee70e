"""Progress of a box that uploads a run's results to a bucket (`box/runs/upload_results.py`)."""

from __future__ import annotations

import re
from typing import NamedTuple

from bootstrap.text.sizes import size

_NOTE = re.compile(
    r"(going|failing|left|whole) ([0-9]{1,12}) ([0-9]{1,18}) ([0-9]{1,12}) ([A-Za-z0-9.-]{1,60}) "
    r"(s3://[A-Za-z0-9._+@=/-]{1,400})"
)


class Uploaded(NamedTuple):
    """Which results are in the bucket, and how many are missing."""

    word: str
    """going, failing (still retrying), left (stopped retrying), whole (complete)."""
    files: int
    bytes: int
    left: int
    """Number of files whose current content is not in the bucket."""
    why: str
    """Why it fails: the bucket's error code, `unreachable`, `no-key`; "" if it doesn't."""
    address: str

    def sentence(self) -> str:
        """Return a sentence for the user."""
        there = f"{self.files} files ({size(self.bytes)}) are in {self.address}"
        if self.word == "whole":
            return f"results: {there}"
        if self.word == "going":
            return f"results: {there}; {self.left} more are to come"
        stopped = "; the next setup or run tries again" if self.word == "left" else ""
        return f"results: {there}; {self.left} are not: {self.why or 'still written to'}{stopped}"

    def as_dict(self) -> dict[str, object]:
        """Return what `--json` prints."""
        return {**self._asdict(), "why": self.why or None}


def parse_uploaded(note: str) -> Uploaded | None:
    """Parse the box's note; None if it is invalid."""
    found = _NOTE.fullmatch(note)
    if not found:
        return None
    word, files, bytes_, left, why, address = found.groups()
    known = "" if why == "-" else why
    return Uploaded(word, int(files), int(bytes_), int(left), known, address)
