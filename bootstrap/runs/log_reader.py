"""One log on a box, from a byte on: as it is, or as it grows, each byte once, across lost links."""

from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bootstrap.link.errors import LinkLost, NoAnswer
from bootstrap.link.exchange import AnswerStream, exchange, stream_answer
from bootstrap.link.parsing import number
from bootstrap.link.reconnecting import Backoff, ReconnectingLink
from bootstrap.link.wire import Wire
from bootstrap.protocol.follow import ANSWER_S, CompletionPoller, follow_file
from bootstrap.protocol.query import RedactedThere, build_query
from bootstrap.protocol.run import Run, as_it_ended

_PIECE = 1024 * 1024
_HOLE = bytes(4096)
"""Zeros that no program writes: what the box let go reads as these."""
_LONGEST = 40
_WAITING = 4
"""Pieces that may wait to be shown, where several logs are read."""


@dataclass
class LogReader:
    """The log of a run, or of a step (`run` is None), by one link that several may share."""

    link: ReconnectingLink
    workdir: str
    file: str
    run: Run | None = None
    redacted_there: Sequence[str] = ()
    at: int = 0
    """The byte that comes next."""
    skipped: int = 0
    """Bytes that the box let go before they came here."""
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Those that share the link share this: one of them makes it anew."""
    _looked_at: int = -1
    """Where zeros were found last."""
    over: Run | None = None
    """The run as it was when it had ended; None while it goes on, or where that is not asked."""
    ended: int | None = None
    """When that was, on the box's clock."""

    def find_start(self, since: int) -> bool:
        """Begin where the log is written since that second of the box's clock, if it tells.

        Raises LinkLost, NoAnswer.
        """
        found = self._start(self.link.wire, str(since))
        self.at = self.at if found is None else found
        return found is not None

    def as_it_is(self) -> Iterator[bytes]:
        """All that is there by now. Raises LinkLost; NoAnswer."""
        there = RedactedThere(self.redacted_there)
        first = f"+{self.at + 1}"
        query = build_query("tail", there, workdir=self.workdir, file=self.file, bytes=first)
        yield from _pieces(stream_answer(self.link.wire, query))

    def as_it_grows(self) -> Iterator[bytes]:
        """All of it to the end of its run; a step's log has none. Raises as `reconnect` does."""
        backoff = Backoff()
        while not self.over:
            wire = self.link.wire
            try:
                yield from self._over(wire)
                # A stream that was left keeps its window, ten MiB, in a cycle.
                gc.collect()
            except LinkLost as lost:
                backoff.lost(lost, news=self.at)
                with self.turn:
                    if self.link.wire is wire:
                        self.link.reconnect(lost)

    def _over(self, wire: Wire) -> Iterator[bytes]:
        """What comes over this wire, until the run is over, or a hole begins."""
        stream = follow_file(
            wire, self.file, workdir=self.workdir, start=self.at, redact=self.redacted_there
        )
        if not self.run:
            for piece in _pieces(stream):
                self.at += len(piece)
                yield piece
            raise LinkLost(self.link.label)
        end = CompletionPoller(wire, stream, self._about_run("run_end"), self.at)
        try:
            yield from self._until_hole(wire, stream, end)
        finally:
            end.stop()

    def _until_hole(
        self, wire: Wire, stream: AnswerStream, end: CompletionPoller
    ) -> Iterator[bytes]:
        for piece in _pieces(stream):
            # Zeros that are there when it is looked again are the program's own.
            before = self.at + piece.find(_HOLE) if _has_hole(piece) else self._looked_at
            if before != self._looked_at:
                stream.close()
                if before > self.at:
                    yield piece[: before - self.at]
                kept = max(before, self._start(wire, "") or 0)
                self.skipped += kept - before
                self.at = self._looked_at = kept
                return
            self.at += len(piece)
            end.seen = self.at
            yield piece
        if self.run and end.reached:
            self.over, self.ended = as_it_ended(self.run, end.state), end.ended
            if not self.over:
                raise NoAnswer("its answers make no sense.", where=self.link.label)
            return
        if not end.is_stuck:
            raise end.trouble or LinkLost(self.link.label)

    def _start(self, wire: Wire, since: str) -> int | None:
        """From which byte on it is kept, or written since then; None where the box can't tell."""
        query = self._about_run("log_start", since)
        return number(exchange(wire, query, timeout=ANSWER_S)[:_LONGEST].strip())

    def _about_run(self, query: str, since: str = "") -> str:
        key, name = (self.run.repo_key, self.run.name) if self.run else ("", "")
        return build_query(query, workdir=self.workdir, repo_key=key, name=name, since=since)


def together(readers: Sequence[LogReader], *, follow: bool) -> Iterator[tuple[int, bytes]]:
    """What comes of each, with its place in `readers`; nothing (b"") at its end.

    Several are read at the same time where they grow, else one after the other. Raises what
    reading raises.
    """
    if len(readers) == 1 or not follow:
        for at, reader in enumerate(readers):
            for piece in reader.as_it_grows() if follow else reader.as_it_is():
                yield at, piece
            yield at, b""
        return
    pieces: queue.Queue[tuple[int, bytes | BaseException]] = queue.Queue(_WAITING)
    for at, reader in enumerate(readers):
        threading.Thread(target=_read_into, args=(pieces, at, reader), daemon=True).start()
    left = len(readers)
    while left:
        at, read = pieces.get()
        if isinstance(read, BaseException):
            raise read
        left -= not read
        yield at, read


def _read_into(
    pieces: queue.Queue[tuple[int, bytes | BaseException]], at: int, reader: LogReader
) -> None:
    try:
        for piece in reader.as_it_grows():
            if piece:
                pieces.put((at, piece))
        pieces.put((at, b""))
    except BaseException as error:
        pieces.put((at, error))


def _has_hole(piece: bytes) -> bool:
    # The first test runs at memory speed.
    return b"\0" in piece and _HOLE in piece


def _pieces(stream: AnswerStream) -> Iterator[bytes]:
    while piece := stream.read(_PIECE):
        yield piece
