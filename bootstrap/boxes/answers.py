"""Answers in lines of JSON. A box is not trusted because it speaks JSON: here alone length, depth,
numbers and text of what it says are bounded, and whoever reads an answer asks this for its values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from bootstrap.link.exchange import valid_time
from bootstrap.sanitize import one_line

MOST_LINES = 20_000
LONGEST = 64 * 1024  # bytes of a line
_MOST_DEPTH = 8
_MOST_ROWS = 128
_MOST_COUNT = 10**18
_LONGEST_TEXT = 3000


class BoxDocument:
    """What one line says: each value is of the kind that is asked for, or is the plainest one."""

    def __init__(self, values: dict[str, object]) -> None:
        self._values = values
        self.kind = self.text("kind")

    def text(self, name: str, most: int = _LONGEST_TEXT) -> str:
        """Return a text in one line, without control characters."""
        return _plain(self._values.get(name), most)

    def block(self, name: str, most: int) -> bytes:
        """Return the end of a text of several lines, of which each has yet to be sanitized."""
        value = self._values.get(name)
        return value.encode("utf-8", "replace")[-most:] if isinstance(value, str) else b""

    def count(self, name: str) -> int | None:
        """Return a number that is not negative; None if there is none."""
        value = self._values.get(name)
        return value if type(value) is int and 0 <= value < _MOST_COUNT else None

    def time(self, name: str) -> int:
        """Return seconds since 1970; 0 for what no clock has."""
        return valid_time(self._values.get(name))

    def has(self, name: str) -> bool:
        return self._values.get(name) is not None

    def flag(self, name: str) -> bool:
        return self._values.get(name) is True

    def texts(self, name: str) -> dict[str, str]:
        value = self._values.get(name)
        rows = [*value.items()][:_MOST_ROWS] if isinstance(value, dict) else []
        return {_plain(key): _plain(text) for key, text in rows}

    def names(self, name: str) -> list[str]:
        value = self._values.get(name)
        return [_plain(each) for each in value[:_MOST_ROWS]] if isinstance(value, list) else []

    def rows(self, name: str) -> list[BoxDocument]:
        value = self._values.get(name)
        found = value[:_MOST_ROWS] if isinstance(value, list) else []
        return [BoxDocument(each) for each in found if isinstance(each, dict)]


def documents(answer: bytes) -> Iterator[BoxDocument]:
    """Yield the objects of an answer; lines that are none, or break a bound, are left out."""
    for line in answer.split(b"\n", MOST_LINES)[:MOST_LINES]:
        if line[:1] == b"{" and len(line) <= LONGEST:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict) and _is_flat(value, _MOST_DEPTH):
                yield BoxDocument(value)


def _is_flat(value: object, most: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return most > 0 and all(_is_flat(each, most - 1) for each in inner)


def _plain(value: object, most: int = _LONGEST_TEXT) -> str:
    text = value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""
    return one_line(text[: 2 * most])[:most]
