"""How a log is written to standard output: as it is, line by line with its run, as JSON."""

from __future__ import annotations

import json
import sys

_LONGEST_LINE = 1024 * 1024
"""Bytes of a line in one JSON object, or behind one name; a longer one comes in several."""


class PlainLog:
    """Log as it is."""

    def write(self, data: bytes) -> None:
        """Write what is next of it."""
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def end(self) -> None:
        """Nothing is held back."""


class NamedLog:
    """Log of one run among several: whole lines, each behind its name."""

    def __init__(self, name: str) -> None:
        self._name = f"{name} | ".encode()
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Write the lines that are whole by now."""
        whole, newline, self._rest = (self._rest + data).rpartition(b"\n")
        if not newline and len(self._rest) > _LONGEST_LINE:
            whole, newline, self._rest = self._rest, b"\n", b""
        if newline:
            lines = whole.replace(b"\n", b"\n" + self._name)
            sys.stdout.buffer.write(self._name + lines + newline)
            sys.stdout.buffer.flush()

    def end(self) -> None:
        """A last line need not end with a newline."""
        if self._rest:
            self.write(b"\n")


class JsonLog:
    """One JSON object a line; of a line that is too long several, all but the last `cut`.

    `also` stands in each.
    """

    def __init__(self, **also: object) -> None:
        self._rest = bytearray()
        self._also = also

    def write(self, data: bytes) -> None:
        """Write the lines that are whole by now."""
        begin, *others = data.split(b"\n")
        self._rest += begin
        for other in others:
            self._put(len(self._rest))
            self._rest += other
        while len(self._rest) > _LONGEST_LINE:
            self._put(_whole_characters(self._rest, _LONGEST_LINE), cut=True)
        sys.stdout.buffer.flush()

    def end(self) -> None:
        """A last line need not end with a newline."""
        if self._rest:
            self.write(b"\n")

    def _put(self, size: int, **also: object) -> None:
        text = self._rest[:size].decode("utf-8", "replace")
        del self._rest[:size]
        line = json.dumps({"v": 1, **self._also, "line": text, **also})
        sys.stdout.buffer.write(line.encode() + b"\n")


def _whole_characters(data: bytearray, most: int) -> int:
    """No more than `most` bytes, without cutting a character of UTF-8 in two."""
    return next((at for at in range(most, most - 4, -1) if data[at] & 0xC0 != 0x80), most)
