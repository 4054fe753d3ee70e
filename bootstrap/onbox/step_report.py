"""What a program tells the step that runs it: warnings and a code on standard output, which
`report` of `templates/lib/events.sh` passes on, and sentences for the step's log. What one tells
the machine that asked: a word, a tab and a value a line.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress


class StepError(Exception):
    """Ends the step, with a code for its event and sentences for its log."""

    def __init__(self, code: str, *sentences: str) -> None:
        super().__init__(code, *sentences)
        self.code, self.sentences = code, sentences


def caution(code: str, *sentences: str) -> None:
    """Warn, and continue; after the code there may be numbers, as ` count=2`."""
    sys.stdout.write(f"warn code={code}\n")
    log(*sentences)


def log(*sentences: str) -> None:
    sys.stderr.write("".join(f"{each}\n" for each in sentences))


def answer(word: str, value: str = "") -> None:
    with suppress(OSError):  # nobody listens any more: what goes on here goes on
        os.write(1, f"{word}\t{value}\n".encode("utf-8", "surrogateescape"))
