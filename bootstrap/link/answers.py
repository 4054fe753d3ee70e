"""Parse a box's answers, with limits. No other module converts a box's text to numbers.

Python's own functions accept too much: `int` takes digits of other scripts, and thousands of them;
`str.isdigit` is true for characters that `int` refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bootstrap.text.sanitize import sanitize

MOST_LINES = 5000
LONGEST = 4096
"""Bytes that are read of one line."""
_MOST_CODE = 255


def answer_number(text: str | bytes) -> int | None:
    """Parse a number of at most 18 digits; None for anything else."""
    plain = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    return int(plain) if re.fullmatch(r"[0-9]{1,18}", plain) else None


def answer_exit_code(text: str | bytes) -> int | None:
    """Parse a shell's exit code (0 to 255); None for anything else."""
    code = answer_number(text)
    return code if code is not None and code <= _MOST_CODE else None


def answer_version(text: str) -> tuple[int, ...]:
    """Return the first numbers in the text, at most two; empty if there are none."""
    return tuple(int(part) for part in re.findall(r"[0-9]{1,6}", text)[:2])


def answer_rows(answer: bytes) -> Iterator[tuple[str, str]]:
    """Yield word and value of each line with a tab between them, sanitized; skip other lines."""
    for line in answer.split(b"\n", MOST_LINES)[:MOST_LINES]:
        word, tab, value = sanitize(line[:LONGEST]).partition("\t")
        if tab:
            yield word, value
