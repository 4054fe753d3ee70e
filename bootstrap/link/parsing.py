"""What a box says, read with bounds. No other module makes a number of a box's text.

Python's own readers take more than a box writes: `int` other scripts' digits and thousands of them,
`str.isdigit` characters that `int` refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bootstrap.text.sanitize import sanitize

MOST_LINES = 5000
LONGEST = 4096
"""Bytes of one line; more of it is not read."""
_MOST_CODE = 255


def number(text: str | bytes) -> int | None:
    """A number as a box writes it; None where it is none, or longer than any that makes sense."""
    plain = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    return int(plain) if re.fullmatch(r"[0-9]{1,18}", plain) else None


def exit_code(text: str | bytes) -> int | None:
    """A number that a shell can end with."""
    code = number(text)
    return code if code is not None and code <= _MOST_CODE else None


def version(text: str) -> tuple[int, ...]:
    """The first numbers in it, at most two; empty where there are none."""
    return tuple(int(part) for part in re.findall(r"[0-9]{1,6}", text)[:2])


def rows(answer: bytes) -> Iterator[tuple[str, str]]:
    """The lines that are a word, a tab, and a value; both clean. All else is passed over."""
    for line in answer.split(b"\n", MOST_LINES)[:MOST_LINES]:
        word, tab, value = sanitize(line[:LONGEST]).partition("\t")
        if tab:
            yield word, value
