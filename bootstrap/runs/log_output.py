"""Write a log to standard output: unchanged, with the run's name before each line, or as JSON."""

from __future__ import annotations

import json
import sys

_LONGEST_LINE = 1024 * 1024
"""Bytes of a line in one JSON object, or after one name; a longer line is split."""


class PlainLog:
    """A log, unchanged."""

    def write(self, data: bytes) -> None:
        """Write the next piece."""
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def end(self) -> None:
        """Do nothing: no data is held back."""


class NamedLog:
    """The log of one run among several: whole lines, each after the run's name."""

    def __init__(self, name: str) -> None:
        self._name = f"{name} | ".encode()
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Write the lines that are complete so far."""
        whole, newline, self._rest = (self._rest + data).rpartition(b"\n")
        if not newline and len(self._rest) > _LONGEST_LINE:
            whole, newline, self._rest = self._rest, b"\n", b""
        if newline:
            lines = whole.replace(b"\n", b"\n" + self._name)
            sys.stdout.buffer.write(self._name + lines + newline)
            sys.stdout.buffer.flush()

    def end(self) -> None:
        """Write a last line that lacks its newline."""
        if self._rest:
            self.write(b"\n")


class JsonLog:
    """One JSON object per line; several for a line that is too long, all but the last with `cut`.

    `also` is added to each object.
    """

    def __init__(self, **also: object) -> None:
        self._rest = bytearray()
        self._also = also

    def write(self, data: bytes) -> None:
        """Write the lines that are complete so far."""
        begin, *others = data.split(b"\n")
        self._rest += begin
        for other in others:
            self._put(len(self._rest))
            self._rest += other
        while len(self._rest) > _LONGEST_LINE:
            self._put(_whole_characters(self._rest, _LONGEST_LINE), cut=True)
        sys.stdout.buffer.flush()

    def end(self) -> None:
        """Write a last line that lacks its newline."""
        if self._rest:
            self.write(b"\n")

    def _put(self, size: int, **also: object) -> None:
        text = self._rest[:size].decode("utf-8", "replace")
        del self._rest[:size]
        line = json.dumps({"v": 1, **self._also, "line": text, **also})
        sys.stdout.buffer.write(line.encode() + b"\n")


def _whole_characters(data: bytearray, most: int) -> int:
    """Return a size of at most `most` bytes that does not split a UTF-8 character."""
    return next((at for at in range(most, most - 4, -1) if data[at] & 0xC0 != 0x80), most)
