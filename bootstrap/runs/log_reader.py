"""A log on a box, or of a run that is at home: as it is or as it grows, from any byte, each once.
It is read across lost links, and across the parts that the box dropped."""

import gc
import queue
import threading
import time
from collections.abc import Iterator, Sequence

from bootstrap.boxes.at_home import WHOLE, LogPart, RunAtHome
from bootstrap.boxes.disk import LowDisk
from bootstrap.boxes.follow import ANSWER_S, CompletionPoller, follow_file, tail_query
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.run import Run, as_it_ended
from bootstrap.link.exchange import AnswerStream, answer_number, run_script, stream_script
from bootstrap.link.query import BoxRedaction, ask
from bootstrap.link.reconnecting import Backoff
from bootstrap.link.wire import LinkLost, NoAnswer, Wire
from bootstrap.value import dataclass, field, replace

_ENDING_S = 0.3
"""Seconds in which a program that is interrupted ends."""
_PIECE = 1024 * 1024
HOLE = bytes(4096)
"""Zeros that no program writes: parts of a log that the box dropped read as these."""
_LONGEST = 40
_WAITING = 4  # pieces that may wait to be shown, if several logs are read


@dataclass
class LogReader:
    """The log of a run, or of a step (`run` is None); several readers may share a login."""

    box: BoxLogin
    file: str
    run: Run | None = None
    at: int = 0  # the position of the next byte
    skipped: int = 0  # bytes that the box dropped before they were read
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Shared by the readers of one login, so that only one of them reconnects."""
    _looked_at: int = -1  # where the log was kept from when zeros were last found
    _has_told: bool = False
    over: Run | None = None
    """The run as it ended; None while it is live, or if its end is not asked for."""
    part: LogPart = WHOLE
    """What is read of it as it is; as it grows, the last lines alone are a part."""

    def find_start(self, since: int) -> bool:
        """Start at what was written since that second of the box's clock; whether the box knows it.
        Raises LinkLost, NoAnswer."""
        found = self._start(self.box.wire, since)
        self.at = self.at if found is None else found
        return found is not None

    def as_it_is(self) -> Iterator[bytes]:
        """Yield the log as it is now. Raises LinkLost, NoAnswer."""
        there = BoxRedaction(self.box.redacted_there)
        part, workdir = self.part, self.box.workdir
        if part.is_all:
            query = tail_query(self.file, f"+{self.at + 1}", workdir, there)
        else:
            asked = {"until": part.until, "lines": part.lines, "pattern": part.pattern}
            about = {"ask": "part", "file": self.file, "start": self.at, **asked}
            query = ask("runs.logs", about, there, workdir=workdir)
        yield from _pieces(stream_script(self.box.wire, query))

    def find_last_lines(self, count: int) -> None:
        """Start at the last lines of what is there now. Raises LinkLost, NoAnswer."""
        self.at = self._start(self.box.wire, None, lines=count) or self.at

    def as_it_grows(self) -> Iterator[bytes]:
        """Yield the log until its run ends; a step's log never ends. Raises as `reconnect`."""
        backoff = Backoff()
        while not self.over:
            wire = self.box.wire
            try:
                yield from self._over(wire)
                # The abandoned stream is in a reference cycle that keeps its 10 MiB window alive.
                gc.collect()
            except LinkLost as lost:
                backoff.lost(lost, news=self.at)
                if threading.current_thread() is not threading.main_thread():
                    time.sleep(_ENDING_S)  # Ctrl-C ends ssh too, and then all of this
                with self.turn:
                    if self.box.wire is wire:
                        self.box.link.reconnect(lost)

    def _over(self, wire: Wire) -> Iterator[bytes]:
        """Yield what arrives over this wire, until the run is over or a hole starts."""
        stream = follow_file(
            wire, self.file, workdir=self.box.workdir, start=self.at, redact=self.box.redacted_there
        )
        if not self.run:
            for piece in _pieces(stream):
                self.at += len(piece)
                yield piece
            raise LinkLost(self.box.label)
        query = ask("verbs", {"verb": "end", "run": self.run.path}, workdir=self.box.workdir)
        end = CompletionPoller(wire, stream, query, self.at, self._low)
        try:
            yield from self._until_hole(wire, stream, end)
        finally:
            end.stop()

    def _until_hole(
        self, wire: Wire, stream: AnswerStream, end: CompletionPoller
    ) -> Iterator[bytes]:
        for piece in _pieces(stream):
            # Zeros at a place that was already asked about were written by the program.
            before = self.at + piece.find(HOLE) if has_hole(piece) else self._looked_at
            if before != self._looked_at:
                stream.close()
                if before > self.at:
                    yield piece[: before - self.at]
                self.at = before
                found = self._start(wire, None)
                self.at = self._looked_at = before if found is None else found
                self.skipped += max(0, self.at - before)
                return
            self.at += len(piece)
            end.seen = self.at
            yield piece
        if self.run and end.reached:
            over = as_it_ended(self.run, end.state)
            if not over:
                raise NoAnswer("its answers make no sense.", where=self.box.label)
            self.over = replace(over, over=end.ended or 0, begun=end.begun or 0)
            return
        if not end.is_stuck:
            raise end.trouble or LinkLost(self.box.label)

    def _low(self, low: LowDisk) -> None:
        if self.run and not self._has_told:  # once, over all links
            self._has_told = True
            self.box.reporter.warn(f"{self.run.name}: {low.words()}")

    def _start(self, wire: Wire, since: int | None, lines: int | None = None) -> int | None:
        """Ask where the log goes on after a hole at `at`, or was written since, or where its last
        lines start; None if the box can't tell."""
        query = ask_start(self.box.workdir, self.file, self.at, since=since, lines=lines)
        return answer_number(run_script(wire, query, timeout=ANSWER_S)[:_LONGEST].strip())


def ask_start(
    workdir: str, file: str, start: int, *, since: int | None = None, lines: int | None = None
) -> str:
    """Return the query for where a log goes on after a hole at `start`, or was written since that
    second, or where its last lines start."""
    about = {"ask": "start", "file": file, "start": start, "since": since, "lines": lines}
    return ask("runs.logs", about, workdir=workdir)


class KeptLogReader:
    def __init__(self, kept: RunAtHome) -> None:
        self._kept = kept
        self.run: Run | None = kept.run
        self.skipped = kept.dropped
        self.over: Run | None = None
        self._since: int | None = None
        self.part = WHOLE

    def find_start(self, since: int) -> bool:
        self._since = since
        return self._kept.has_times()

    def as_it_is(self) -> Iterator[bytes]:
        """Yield the log, as far as it came home. Raises UsageError if it is gone from here."""
        yield from self._kept.pieces(self._since, self.part)

    def find_last_lines(self, count: int) -> None:
        self.part = replace(self.part, lines=count)

    def as_it_grows(self) -> Iterator[bytes]:
        """Yield the log; here it grows no more."""
        yield from self.as_it_is()
        self.over = None if self._kept.run.goes_on else self._kept.run


AnyReader = LogReader | KeptLogReader


def together(readers: Sequence[AnyReader], *, follow: bool) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of each log with its index in `readers`, b"" at its end: with `follow` all at
    once, else one after the other. Raises what reading raises."""
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
    pieces: queue.Queue[tuple[int, bytes | BaseException]], at: int, reader: AnyReader
) -> None:
    try:
        for piece in reader.as_it_grows():
            if piece:
                pieces.put((at, piece))
        pieces.put((at, b""))
    except BaseException as error:
        pieces.put((at, error))


def has_hole(piece: bytes) -> bool:
    """Whether a piece of a log has zeros that no program writes."""
    # The first test is much faster.
    return b"\0" in piece and HOLE in piece


def _pieces(stream: AnswerStream) -> Iterator[bytes]:
    while piece := stream.read(_PIECE):
        yield piece
