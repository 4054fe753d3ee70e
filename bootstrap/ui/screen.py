"""The one place through which tasks talk to the user.

Progress and notes go to standard error, results to standard output. Which
screen it is (a live timeline, plain lines, one JSON document) is no business
of the task that uses it. The screen redacts and cleans every text it is given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from bootstrap.events import Event
from bootstrap.text.sanitize import sanitize

TAIL_LINES = 40
TAIL_WIDTH = 2000  # characters of one line
TEXT_LENGTH = 100_000  # characters of one text

Paint = Callable[[str], str]
Redact = Callable[[str], str]


class Screen(ABC):
    """What a task can tell."""

    def __init__(self, redact: Redact = str) -> None:
        self.redact = redact  # a Redactor's `text`, once the secrets are known
        self.price: float | None = None  # dollars an hour, once it is known

    @abstractmethod
    def plan(self, steps: Sequence[str]) -> None:
        """The steps to come, in the order in which they are shown."""

    @abstractmethod
    def event(self, event: Event) -> None:
        """Something happened on the box."""

    @abstractmethod
    def say(self, text: str) -> None:
        """A sentence in passing."""

    @abstractmethod
    def note(self, label: str, text: str) -> None:
        """A fact with a name of one word: `note("commit", "1a2b3c4 Fix the loss")`."""

    @abstractmethod
    def warn(self, text: str) -> None:
        """Something the user should know, though the task goes on."""

    @abstractmethod
    def log_tail(self, step: str, lines: Iterable[str | bytes]) -> None:
        """The last lines of a step's log; no more than `TAIL_LINES` are shown."""

    @abstractmethod
    def result(
        self, data: Mapping[str, object], text: str = "", paint: Paint | None = None
    ) -> None:
        """What the task was asked for: `data` for programs, `text` for people.

        Called again, the data are merged and the texts follow each other. `paint`
        puts colours into the text, for terminals that show them.
        """

    @abstractmethod
    def lost(self, seconds: float) -> None:
        """The link is gone, `seconds` after the last sign of life. May be called often."""

    @abstractmethod
    def back(self) -> None:
        """The link is there again."""

    @abstractmethod
    def close(self) -> None:
        """Leave the terminal in order; print what is only printed at the end."""

    def failed(self, error: BaseException, code: int) -> None:  # noqa: B027 - most do nothing
        """The task ends with this error and exit code; a document holds them."""

    def sanitize(self, text: str | bytes) -> str:
        """The text as it may be shown: bounded, cleaned, redacted."""
        # Cleaned first: a secret with an escape code in its midst is a secret still.
        return self.redact(sanitize(text[:TEXT_LENGTH]))

    def sanitize_tail(self, lines: Iterable[str | bytes]) -> list[str]:
        """Log lines as they may be shown; of a progress bar, what it showed last."""
        tail = (
            self.sanitize(line).rstrip().rpartition("\n")[2] for line in deque(lines, TAIL_LINES)
        )
        return [line[:TAIL_WIDTH].expandtabs(4) for line in tail]
