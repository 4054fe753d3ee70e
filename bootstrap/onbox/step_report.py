"""What a program tells the step that runs it: warnings and a code on standard output, which
`report` of `templates/lib/events.sh` passes on, and sentences for the step's log.
"""

from __future__ import annotations

import sys


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
