"""The interface through which tasks talk to the user.

Progress and notes go to standard error, results to standard output. A task doesn't know which
screen it uses (a live timeline, plain lines, one JSON document). The screen redacts and sanitizes
every text that it is given. `Reporter` does nothing; screens and programs override it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from bootstrap.sanitize import sanitize
from bootstrap.sizes import first_of
from bootstrap.value import Document

if TYPE_CHECKING:
    from bootstrap.steps.events import Event


class Reporter:
    """Override what you need. Some calls come from boxstrap's threads, but never two at a time."""

    redact: Callable[[str], str] = str
    """Redacts the secrets in a text; set once they are known."""
    price: float | None = None
    """Dollars an hour that the box costs; set once it is known."""
    has_begun = True
    """Whether what the command does on the box may have begun."""
    begun_run = ""
    """The run that the command began, once it is known."""

    def plan(self, steps: Sequence[str]) -> None:
        """Take the planned steps, in the order in which they are shown."""

    def event(self, event: Event) -> None:
        """Take an event from the box."""

    def say(self, text: str) -> None:
        """Show a sentence."""

    def note(self, label: str, text: str) -> None:
        """Show a fact with a name of one word: `note("commit", "1a2b3c4 Fix the loss")`."""

    def warn(self, text: str) -> None:
        """Show a warning; the task continues."""

    def log_tail(self, step: str, lines: Iterable[str | bytes]) -> None:
        """Show the last lines of a step's log, as the box sent them."""

    def lost(self, seconds: float) -> None:
        """Show that the link was lost `seconds` ago. May be called often."""

    def back(self) -> None:
        """Show that the link is back."""


TAIL_LINES = 40
TAIL_WIDTH = 2000  # characters of one line
_MOST_WARNINGS = 3  # in a row
TEXT_LENGTH = 100_000  # characters of one text

Paint = Callable[[str], str]
Result = Mapping[str, object] | Document


class Screen(Reporter, ABC):
    """What a task can show: the reports of a setup, and results."""

    @abstractmethod
    def result(self, data: Result, text: str = "", paint: Paint | None = None) -> None:
        """Show the task's result: `data` for programs, `text` for people.

        With several calls the data is merged and the texts are shown in order.
        `paint` adds colours to the text, for terminals that support them.
        """

    @abstractmethod
    def close(self) -> None:
        """Restore the terminal; print what is only printed at the end."""

    @property
    def width(self) -> int | None:
        """The columns of the terminal that results are shown on; None where lines may be long."""
        return None

    def failed(self, error: BaseException, code: int) -> None:
        """Take the error and exit code with which the task ends; a JSON document has them."""

    def safe_text(self, text: str | bytes) -> str:
        """Return the text as it may be shown: limited, sanitized, redacted."""
        # Sanitized first: a secret with an escape code in the middle is still a secret.
        return self.redact(sanitize(text[:TEXT_LENGTH]))

    def safe_tail(self, lines: Iterable[str | bytes]) -> list[str]:
        """Return the last log lines, made safe; of a progress bar only its last state, of several
        warnings in a row only the first ones."""
        tail = (
            self.safe_text(line).rstrip().rpartition("\n")[2] for line in deque(lines, TAIL_LINES)
        )
        safe = (line[:TAIL_WIDTH].expandtabs(4) for line in tail)
        groups = groupby(safe, lambda line: line.startswith("warning: "))
        return [
            line
            for are_warnings, group in groups
            for line in (first_of([*group], _MOST_WARNINGS) if are_warnings else group)
        ]
