"""What is said to the step that called: lines for it or its log, and why data does not come."""

from __future__ import annotations

import sys


class DataError(Exception):
    """It ends the fetching of all items; `code` is what the step reports, with its numbers.

    `status`: what a server answered.
    """

    def __init__(self, code: str, sentence: str, status: int = 0) -> None:
        super().__init__(sentence)
        self.code = code
        self.status = status


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
