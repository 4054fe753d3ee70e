"""Read a log on a box, as it is or as it grows: from any byte, each once, across lost links."""

from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bootstrap.link.answers import number
from bootstrap.link.errors import LinkLost, NoAnswer
from bootstrap.link.exchange import AnswerStream, exchange, stream_answer
from bootstrap.link.reconnecting import Backoff, ReconnectingLink
from bootstrap.link.wire import Wire
from bootstrap.protocol.follow import ANSWER_S, CompletionPoller, follow_file
from bootstrap.protocol.query import BoxRedaction, build_query
from bootstrap.protocol.run import Run, as_it_ended

_PIECE = 1024 * 1024
_HOLE = bytes(4096)
"""Zeros that no program writes: parts of a log that the box dropped read as these."""
_LONGEST = 40
_WAITING = 4
"""Pieces that may wait to be shown, if several logs are read."""


@dataclass
class LogReader:
    """The log of a run, or of a step (`run` is None); several readers may share a link."""

    link: ReconnectingLink
    workdir: str
    file: str
    run: Run | None = None
    redacted_by_box: Sequence[str] = ()
    at: int = 0
    """The position of the next byte."""
    skipped: int = 0
    """Bytes that the box dropped before they were read."""
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Shared by the readers of one link, so that only one of them reconnects."""
    _looked_at: int = -1
    """Where the log was kept from when zeros were last found."""
    over: Run | None = None
    """The run as it ended; None while it is live, or if its end is not asked for."""
    ended: int | None = None
    """When it ended, on the box's clock."""

    def find_start(self, since: int) -> bool:
        """Start at what was written since that second of the box's clock; whether the box knows it.

        Raises LinkLost, NoAnswer.
        """
        found = self._start(self.link.wire, str(since))
        self.at = self.at if found is None else found
        return found is not None

    def as_it_is(self) -> Iterator[bytes]:
        """Yield the log as it is now. Raises LinkLost, NoAnswer."""
        there = BoxRedaction(self.redacted_by_box)
        first = f"+{self.at + 1}"
        query = build_query("tail", there, workdir=self.workdir, file=self.file, bytes=first)
        yield from _pieces(stream_answer(self.link.wire, query))

    def as_it_grows(self) -> Iterator[bytes]:
        """Yield the log until its run ends; a step's log never ends. Raises as `reconnect`."""
        backoff = Backoff()
        while not self.over:
            wire = self.link.wire
            try:
                yield from self._over(wire)
                # The abandoned stream is in a reference cycle that keeps its 10 MiB window alive.
                gc.collect()
            except LinkLost as lost:
                backoff.lost(lost, news=self.at)
                with self.turn:
                    if self.link.wire is wire:
                        self.link.reconnect(lost)

    def _over(self, wire: Wire) -> Iterator[bytes]:
        """Yield what arrives over this wire, until the run is over or a hole starts."""
        stream = follow_file(
            wire, self.file, workdir=self.workdir, start=self.at, redact=self.redacted_by_box
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
            # Zeros at a place that was already asked about were written by the program.
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
        """Ask from which byte the log is kept, or was written since; None if the box can't tell."""
        query = self._about_run("log_start", since)
        return number(exchange(wire, query, timeout=ANSWER_S)[:_LONGEST].strip())

    def _about_run(self, query: str, since: str = "") -> str:
        key, name = (self.run.repo_key, self.run.name) if self.run else ("", "")
        return build_query(query, workdir=self.workdir, repo_key=key, name=name, since=since)


def together(readers: Sequence[LogReader], *, follow: bool) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of each log with its index in `readers`; b"" at its end.

    With `follow` several are read at the same time, else one after the other. Raises what
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
    # The first test is much faster.
    return b"\0" in piece and _HOLE in piece


def _pieces(stream: AnswerStream) -> Iterator[bytes]:
    while piece := stream.read(_PIECE):
        yield piece
