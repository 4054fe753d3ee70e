"""What a setup reports on its way. Silent as it is; a screen shows it, a program may take it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bootstrap.events import Event


class Reporter:
    """Override what you want to hear. Some of it comes from threads of ours, one call at a time."""

    redact: Callable[[str], str] = str
    """Takes the secrets out of a text; set once they are known."""
    price: float | None = None
    """Dollars an hour that the box costs; set once it is known."""

    def plan(self, steps: Sequence[str]) -> None:
        """The steps to come, in the order in which they are shown."""

    def event(self, event: Event) -> None:
        """Something happened on the box."""

    def say(self, text: str) -> None:
        """A sentence in passing."""

    def note(self, label: str, text: str) -> None:
        """A fact with a name of one word: `note("commit", "1a2b3c4 Fix the loss")`."""

    def warn(self, text: str) -> None:
        """Something the user should know, though the task goes on."""

    def log_tail(self, step: str, lines: Iterable[str | bytes]) -> None:
        """The last lines of a step's log, as the box has them."""

    def lost(self, seconds: float) -> None:
        """The link was lost `seconds` ago. May be called often."""

    def back(self) -> None:
        """The link is there again."""
