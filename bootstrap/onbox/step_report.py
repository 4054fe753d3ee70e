"""What a step tells the setup, as `progress done=2 total=5`, and sentences for its log. What one
tells the machine that asked: a word, a tab and a value a line.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # slow to import
    from typing import Any

step = ""
"""The step that this process is, if it is one."""
events = 1
"""Where it writes its events: the setup's pipe."""
_EVENT_WORDS = ("progress", "wait", "note")


class StepError(Exception):
    """Ends the step, with a code for its event and sentences for its log."""

    def __init__(self, code: str, *sentences: str, rc: int = 1) -> None:
        super().__init__(*sentences)
        self.code, self.sentences, self.rc = code, sentences, rc


def tell(event: str) -> None:
    if step:
        os.write(events, f"{step} {event}\n".encode())
    else:
        sys.stdout.write(f"{event}\n")


def caution(code: str, *sentences: str) -> None:
    """Warn, and continue; after the code there may be numbers, as ` count=2`."""
    tell(f"warn code={code}")
    log(*sentences)


def report(said: str) -> str:
    """Pass on what a check found, a line each: events, the code of a failure, which is returned,
    and lines for the log."""
    code = ""
    for line in said.splitlines():
        word, _, rest = line.partition(" ")
        if word == "code":
            code = rest
        elif word in _EVENT_WORDS or line.startswith("warn code="):
            tell(line)
        else:
            sys.stdout.write(f"{line}\n")
    return code


def log(*sentences: str) -> None:
    with suppress(OSError):  # a full disk, which the setup still tells
        sys.stderr.write("".join(f"{each}\n" for each in sentences))


def answer(word: str, value: str = "") -> None:
    with suppress(OSError):  # nobody listens any more: what goes on here goes on
        os.write(1, f"{word}\t{value}\n".encode("utf-8", "surrogateescape"))


def question() -> tuple[str, Any]:
    """Return boxstrap's folder, and what is asked: a document of JSON, the second argument, or a
    variable where no list of processes is to show it."""
    return sys.argv[1], json.loads(os.environ.pop("BOXSTRAP_REQUEST", "") or sys.argv[2])
