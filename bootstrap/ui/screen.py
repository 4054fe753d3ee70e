"""The interface through which tasks talk to the user.

Progress and notes go to standard error, results to standard output. A task
doesn't know which screen it uses (a live timeline, plain lines, one JSON
document). The screen redacts and sanitizes every text that it is given.
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
    """What a task can show: the reports of a setup, and results."""

    def __init__(self, redact: Redact = str) -> None:
        self.redact = redact  # a Redactor's `text`, once the secrets are known

    @abstractmethod
    def result(
        self, data: Mapping[str, object], text: str = "", paint: Paint | None = None
    ) -> None:
        """Show the task's result: `data` for programs, `text` for people.

        With several calls the data is merged and the texts are shown in order.
        `paint` adds colours to the text, for terminals that support them.
        """

    @abstractmethod
    def close(self) -> None:
        """Restore the terminal; print what is only printed at the end."""

    def failed(self, error: BaseException, code: int) -> None:
        """Take the error and exit code with which the task ends; a JSON document has them."""

    def safe_text(self, text: str | bytes) -> str:
        """Return the text as it may be shown: limited, sanitized, redacted."""
        # Sanitized first: a secret with an escape code in the middle is still a secret.
        return self.redact(sanitize(text[:TEXT_LENGTH]))

    def safe_tail(self, lines: Iterable[str | bytes]) -> list[str]:
        """Return the last log lines, made safe; of a progress bar only its last state."""
        tail = (
            self.safe_text(line).rstrip().rpartition("\n")[2] for line in deque(lines, TAIL_LINES)
        )
        return [line[:TAIL_WIDTH].expandtabs(4) for line in tail]
