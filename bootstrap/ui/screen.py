"""The one place through which tasks talk to the user.

Progress and notes go to standard error, results to standard output. Which
screen it is (a live timeline, plain lines, one JSON document) is no business
of the task that uses it. The screen redacts and cleans every text it is given.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO

from bootstrap.events import Event
from bootstrap.text.sanitize import sanitize
from bootstrap.ui import terminal

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


def make_screen(  # noqa: PLR0913 - all but the first have one sensible value
    json: bool = False,
    stream: TextIO | None = None,
    out: TextIO | None = None,
    *,
    redact: Redact = str,
    price: float | None = None,
    env: Mapping[str, str] | None = None,
) -> Screen:
    """The screen that suits: JSON where asked, live on a terminal, plain lines elsewhere.

    `stream` (default: standard error) takes progress, `out` (default: standard
    output) results; `price` is in dollars an hour. `TERM=dumb` means plain
    lines; `NO_COLOR` keeps the timeline and takes its colours.
    """
    stream, out = stream or sys.stderr, out or sys.stdout
    env = os.environ if env is None else env
    screen = _choose(json, stream, out, redact, env)
    screen.price = price
    return screen


def _choose(
    json: bool, stream: TextIO, out: TextIO, redact: Redact, env: Mapping[str, str]
) -> Screen:
    if json:
        from bootstrap.ui.document import DocumentScreen

        return DocumentScreen(out, redact)
    if terminal.is_live(stream, env):
        from bootstrap.ui.timeline import TimelineScreen

        return TimelineScreen(stream, out, redact, env=env)
    from bootstrap.ui.plain import PlainScreen

    return PlainScreen(stream, out, redact)
