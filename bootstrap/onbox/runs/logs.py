"""A run's log: where it was at a time, a part of it, or all that is noted of its run with it.

`onbox runs.logs BOX_HOME REQUEST`: a document of JSON, whose `ask` is `start`, `part` or `record`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import IO, Any, BinaryIO

from ..metrics import newest, read_patterns
from ..run_folder import RunFolder
from ..step_report import question

PIECE = 1 << 16
WINDOW = 1 << 22
METRIC_BYTES = 16384


class LogFile:
    """An open log, and `times`: seconds, and how long it was then."""

    def __init__(self, file: BinaryIO, times: Sequence[tuple[int, int]], kept: int = 0) -> None:
        self.file, self.times, self.kept = file, times, kept
        """`kept`: the byte before which it was dropped."""
        self.size = file.seek(0, os.SEEK_END)
        self.close = file.close

    def written_since(self, second: int) -> int:
        """Return where the line starts that was being written then: later output is after it."""
        at = 0
        for row, (when, size) in enumerate(self.times):
            if row and when >= second:
                break
            at = size
        return self.lines_before(max(self.kept, at - PIECE), at, 1, is_whole=False)

    def written_until(self, second: int) -> int:
        """Return where the line ends that was being written then. What grew the log was written at
        most a second before it was noted; before that it may have been silent for hours."""
        rows = zip([*self.times[:1], *self.times], self.times)  # noqa: B905 - Python 3.8
        at = next((size for (_, size), (when, _) in rows if when > second + 1), self.size)
        if at >= self.size or at <= self.kept:
            return min(at, self.size)
        self.file.seek(at - 1)  # a line that was whole by then has no rest
        return at - 1 + len(self.file.readline())

    def lines_before(self, begin: int, end: int, count: int, *, is_whole: bool = True) -> int:
        """Return where the last lines start of what lies between two bytes; the last one may be
        whole."""
        window = PIECE
        while True:
            first = max(begin, end - window)
            self.file.seek(first)
            data = self.file.read(end - first)
            if first == begin or data.count(b"\n") > count:
                break
            window *= 16
        at = len(data) - (is_whole and data.endswith(b"\n"))
        for _ in range(count):
            at = data.rfind(b"\n", 0, at)
            if at < 0:
                break
        return first + at + 1 if count else end

    def pieces(self, begin: int, end: int) -> Iterator[bytes]:
        self.file.seek(begin)
        while begin < end and (piece := self.file.read(min(PIECE, end - begin))):
            begin += len(piece)
            yield piece

    def matching(self, begin: int, end: int, pattern: str) -> Iterator[bytes]:
        """Yield the lines there that match, as grep reads patterns: a log may hold any byte."""
        command, env = ["grep", "-aE", "-e", pattern], {**os.environ, "LC_ALL": "C"}
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env) as grep:
            assert grep.stdin and grep.stdout  # noqa: PT018, S101 - for mypy
            threading.Thread(target=self._feed, args=(grep.stdin, begin, end), daemon=True).start()
            yield from grep.stdout

    def _feed(self, to: IO[bytes], begin: int, end: int) -> None:
        with to:
            for piece in self.pieces(begin, end):
                to.write(piece)

    def part(self, asked: dict[str, Any]) -> Iterator[bytes]:
        """Yield it from a byte on, until a second, lines that match, the last ones."""
        begin, lines, pattern = asked["start"], asked["lines"], asked["pattern"]
        end = self.size if asked["until"] is None else self.written_until(asked["until"])
        if end <= begin:
            return
        if not pattern:
            begin = begin if lines is None else self.lines_before(begin, end, lines)
            yield from self.pieces(begin, end)
        elif lines is None:
            yield from self.matching(begin, end, pattern)
        else:
            yield from self._last_matches(begin, end, pattern, lines)

    def _last_matches(self, begin: int, end: int, pattern: str, count: int) -> deque[bytes]:
        """Return them; they are mostly near the end."""
        window = WINDOW
        while end - window > begin:
            self.file.seek(end - window)
            start = end - window + len(self.file.readline())  # the cut line is no match
            found = deque(self.matching(start, end, pattern), count)
            if len(found) == count:
                return found
            window *= 16
        return deque(self.matching(begin, end, pattern), count)


class RunLog(LogFile):
    """The log of a run, in its folder, or of a step."""

    def __init__(self, path: str) -> None:
        self.run = RunFolder(os.path.dirname(path))
        times = self.run.times
        file = open(path if os.path.isfile(path) else os.devnull, "rb")  # noqa: SIM115 - till the end
        super().__init__(file, times, times[0][1] if times else 0)

    def goes_on_at(self, byte: int) -> int:
        """Return where a reader goes on that found zeros at this byte, or before it."""
        return max(min(byte, self.size), self.kept)

    def record(self, asked: dict[str, Any]) -> Iterator[bytes]:
        """Yield what is noted of the run, each part after a line that only the caller can know: a
        log may contain anything. The last such line says which bytes of the log come."""
        mark = f"\n{asked['mark']} "
        for note in asked["notes"]:
            if self.run.has(note):
                yield f"{mark}{note}\n".encode()
                with open(f"{self.run.path}/{note}", "rb") as file:
                    yield file.read(asked["most_note"])
        patterns = read_patterns("\n".join(self.run.lines("metrics") or []))
        metric = newest(self.run.end("log", METRIC_BYTES), patterns)
        yield f"{mark}metric\n{self.run.name}\t{metric}\n".encode("utf-8", "replace")
        begin = max(self.kept, asked["at"] if asked["at"] <= self.size else 0)
        begin = min(max(begin, self.size - asked["most"]), self.size)
        yield f"{mark}log {begin} {self.size - begin}\n".encode()
        yield from self.pieces(begin, self.size) if begin < self.size else ()

    def start(self, asked: dict[str, Any]) -> Iterator[bytes]:
        """Yield where a reader begins: at the last lines, at what was written since, or after a
        hole; nothing if `times` would be needed and aren't there."""
        if asked["lines"] is not None:
            yield b"%d\n" % self.lines_before(asked["start"], self.size, asked["lines"])
        elif asked["since"] is None:
            yield b"%d\n" % self.goes_on_at(asked["start"])
        elif self.run.has("times"):
            yield b"%d\n" % self.written_since(asked["since"])


def main() -> None:
    home, asked = question()
    log = RunLog(f"{home}/{asked['file']}")
    with closing(log):
        for piece in {"start": log.start, "part": log.part, "record": log.record}[asked["ask"]](
            asked
        ):
            sys.stdout.buffer.write(piece)
