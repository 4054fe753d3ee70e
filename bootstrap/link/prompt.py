"""What a login tells the user, and asks on the terminal. Questions go to the controlling terminal,
like ssh's, and not to standard input or output, which may be a pipe or used for `--json`."""

import getpass
import os
import stat
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

_ONE_QUESTION = threading.Lock()
"""There is only one terminal, and a login may run in parallel with another question."""
while_asking: Callable[[], AbstractContextManager[None]] = nullcontext
"""Entered while a question is asked; a table of several boxes, which is redrawn, sets it."""


class Prompt:
    """Reports through the caller's `say`, and asks on the terminal."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say

    def has_terminal(self) -> bool:
        """Whether there is a terminal to ask on, and somebody may be watching it.

        A program that captures all output has the terminal of whoever started it, and would wait
        forever for the answer to a question that it never sees.
        """
        if not any(stream and stream.isatty() for stream in (sys.stderr, sys.stdout)):
            return False
        try:
            os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
        except OSError:
            return False
        return True

    def confirm(self, question: str) -> bool:
        """Ask yes or no, until it is one of them. False without a terminal."""
        if not self.has_terminal():
            return False
        answers = {"yes": True, "y": True, "no": False, "n": False, None: False}
        said = self.ask(f"{question} (yes/no) ", lambda text: text.lower() in answers, "yes or no")
        return answers[said.lower() if said is not None else None]

    def choose(self, question: str, choices: Sequence[str]) -> str:
        """Ask for the number of one of `choices`; Enter, or no terminal, means the first."""
        listed = "".join(f"  {at}  {each}\n" for at, each in enumerate(choices, 1))
        numbers = {"": 1, **{str(at): at for at in range(1, len(choices) + 1)}}
        question = f"{listed}{question} (1 to {len(choices)}, or Enter for 1) "
        said = self.ask(question, lambda text: text in numbers, f"a number, 1 to {len(choices)}")
        return choices[numbers[said or ""] - 1]

    def ask(self, question: str, fits: Callable[[str], bool], wanted: str) -> str | None:
        """Ask for a line until it `fits`; None without a terminal, or if it is closed instead."""
        if not self.has_terminal():
            return None
        with (
            _ONE_QUESTION,
            while_asking(),
            suppress(OSError),  # the terminal hung up
            Path("/dev/tty").open("r+b", buffering=0) as terminal,
        ):
            if sys.stdin and stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
                terminal.write(b"Answer here: what is piped in is not read for it.\n")
            terminal.write(question.encode())
            while line := terminal.readline():
                text = line.decode(errors="replace").strip()
                if fits(text):
                    return text
                terminal.write(f"Please type {wanted}: ".encode())
        return None

    def secret(self, prompt: str) -> str | None:
        """Ask for a passphrase without showing it; None without a terminal, or if none is given."""
        if not self.has_terminal():
            return None
        try:
            with _ONE_QUESTION, while_asking():
                return getpass.getpass(prompt) or None
        except EOFError:
            return None
