"""Lines for the calling step or its log, and the error that says why data is missing."""

from __future__ import annotations

import sys


class DataError(Exception):
    """Ends the fetching of all items; `code` is what the step reports, with its numbers.

    `status`: the server's HTTP status, 0 if there is none.
    """

    def __init__(self, code: str, sentence: str, status: int = 0) -> None:
        super().__init__(sentence)
        self.code = code
        self.status = status


def say(line: str) -> None:
    """Print a line, and flush it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
