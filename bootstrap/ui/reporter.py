"""What a setup reports while it runs. `Reporter` does nothing; screens and programs override it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bootstrap.events import Event


class Reporter:
    """Override what you need. Some calls come from boxstrap's threads, but never two at a time."""

    redact: Callable[[str], str] = str
    """Redacts the secrets in a text; set once they are known."""
    price: float | None = None
    """Dollars an hour that the box costs; set once it is known."""

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
