"""What a login tells the user, and asks on the terminal.

Questions go to the controlling terminal, like ssh's, and not to standard
input or output, which may be a pipe or used for `--json`.
"""

from __future__ import annotations

import getpass
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

_ONE_QUESTION = threading.Lock()
"""There is only one terminal, and a login may run in parallel with another question."""


class Prompt:
    """Reports through the caller's `say`, and asks on the terminal."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def has_terminal(self) -> bool:
        """Whether there is a terminal to ask on."""
        try:
            os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
        except OSError:
            return False
        return True

    def confirm(self, question: str) -> bool:
        """Ask for a typed-out "yes". False without a terminal."""
        if not self.has_terminal():
            return False
        with _ONE_QUESTION, Path("/dev/tty").open("r+b", buffering=0) as terminal:
            terminal.write(f"{question} (yes/no) ".encode())
            return terminal.readline().strip().lower() == b"yes"

    def choose(self, question: str, choices: Sequence[str]) -> str:
        """Ask for the number of one of `choices`; anything else means the first."""
        listed = "".join(f"  {at}  {each}\n" for at, each in enumerate(choices, 1))
        with _ONE_QUESTION, Path("/dev/tty").open("r+b", buffering=0) as terminal:
            terminal.write(f"{listed}{question} (1 to {len(choices)}, or Enter for 1) ".encode())
            typed = terminal.readline().strip()
        at = int(typed) if typed.isdigit() else 1
        return choices[at - 1 if 0 < at <= len(choices) else 0]

    def secret(self, prompt: str) -> str | None:
        """Ask for a passphrase without showing it; None if none is given."""
        try:
            with _ONE_QUESTION:
                return getpass.getpass(prompt) or None
        except EOFError:
            return None
