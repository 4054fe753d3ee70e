"""The one place through which tasks talk to the user.

Progress and notes go to standard error, results to standard output. Which
screen it is (a live timeline, plain lines, one JSON document) is no business
of the task that uses it. The screen redacts and cleans every text it is given.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from bootstrap.text.sanitize import sanitize
from bootstrap.ui.reporter import Reporter

TAIL_LINES = 40
TAIL_WIDTH = 2000  # characters of one line
TEXT_LENGTH = 100_000  # characters of one text

Paint = Callable[[str], str]
Redact = Callable[[str], str]


class Screen(Reporter, ABC):
    """What a task can show: what a setup reports on its way, and results."""

    def __init__(self, redact: Redact = str) -> None:
        self.redact = redact  # a Redactor's `text`, once the secrets are known

    @abstractmethod
    def result(
        self, data: Mapping[str, object], text: str = "", paint: Paint | None = None
    ) -> None:
        """What the task was asked for: `data` for programs, `text` for people.

        Called again, the data are merged and the texts follow each other. `paint`
        puts colours into the text, for terminals that show them.
        """

    @abstractmethod
    def close(self) -> None:
        """Restore the terminal; print what is only printed at the end."""

    def failed(self, error: BaseException, code: int) -> None:
        """The task ends with this error and exit code; a document holds them."""

    def safe_text(self, text: str | bytes) -> str:
        """The text as it may be shown: limited, sanitized, redacted."""
        # Sanitized first: a secret with an escape code in the middle is still a secret.
        return self.redact(sanitize(text[:TEXT_LENGTH]))

    def safe_tail(self, lines: Iterable[str | bytes]) -> list[str]:
        """Log lines as they may be shown; of a progress bar, what it showed last."""
        tail = (
            self.safe_text(line).rstrip().rpartition("\n")[2] for line in deque(lines, TAIL_LINES)
        )
        return [line[:TAIL_WIDTH].expandtabs(4) for line in tail]
