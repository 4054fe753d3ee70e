"""Following a file on the box as it grows, across lost links, without a lost or doubled byte."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator

from bootstrap.errors import StepFailedError
from bootstrap.events import Event, EventLines
from bootstrap.link.backoff import Backoff
from bootstrap.link.errors import LinkLost, NoAnswer
from bootstrap.link.exchange import shell_command
from bootstrap.link.reconnecting import ReconnectingLink
from bootstrap.link.wire import Stream, Wire
from bootstrap.protocol.completion import CompletionPoller
from bootstrap.protocol.query import build_query

MOST_TOLD = 16 * 1024 * 1024
"""Bytes of events that one setup may tell: two events a second for most of a day."""
MOST_REFUSED = 100_000
"""Lines among them that may be no events; another version's may be some."""
MARK_S = 60.0
"""How long a box may take to begin an answer, in seconds."""
_MOST_NOISE = 8 * 1024 * 1024
_HELD = 64 * 1024


def grow(wire: Wire, file: str, *, workdir: str = "", start: int = 0) -> Stream:
    """A stream of `file` (below boxstrap's folder) from byte `start` on; it ends with the link.

    Raises LinkLost; a file that isn't there yet is waited for. Reading raises
    NoAnswer where the box says something else.
    """
    sentinel = secrets.token_hex(16)
    query = build_query("follow", workdir=workdir, file=file, **{"from": start + 1})
    stream = wire.start(shell_command(f"echo\necho {sentinel}\n{query}"))
    return after_mark(stream, sentinel, wire.label)


def follow_events(link: ReconnectingLink, setup: str, *, workdir: str) -> Iterator[Event]:
    r"""The events of a setup from its first on, each once and in order, up to its `done`.

    A lost link is taken up again where it broke (`ReconnectingLink\.reconnect`, which may
    give up with UnreachableError). Raises StepFailedError where the setup died without a word,
    NoAnswer where the box tells no end of anything, or answers no more.
    """
    lines, backoff = EventLines(), Backoff()
    last = told = 0
    query = build_query("setup_end", workdir=workdir, setup_id=setup)
    while True:
        try:
            wire = link.wire
            stream = grow(
                wire, f"setups/{setup}/events.jsonl", workdir=workdir, start=lines.consumed
            )
            # What was read over an earlier link counts: there may be nothing more to come.
            end = CompletionPoller(wire, stream, query, seen=lines.consumed)
            while piece := stream.read(64 * 1024):
                told += len(piece)
                if told > MOST_TOLD or lines.refused > MOST_REFUSED:
                    end.stop()
                    stream.close()
                    raise _endless(link.label)
                for event in lines.feed(piece):
                    if event.seq <= last or event.setup != setup:
                        continue
                    last = event.seq
                    yield event
                    if event.event == "done":
                        end.stop()
                        stream.close()
                        return
                end.seen = lines.read
            if end.reached:
                raise _gone(link.label)
            if end.trouble:
                raise end.trouble
            raise LinkLost(link.label, "the box stopped telling how the setup goes")
        except LinkLost as lost:
            lines.link_lost()
            backoff.lost(lost, news=lines.consumed)
            link.reconnect(lost)


def _gone(label: str) -> StepFailedError:
    return StepFailedError(
        "the setup's process on the box is gone: it was killed, or the box restarted.",
        where=label,
        hint="Run the same command again: it goes on where it stopped.",
    )


def _endless(label: str) -> NoAnswer:
    return NoAnswer(
        "it tells of a setup without end what no setup has to tell.",
        where=label,
        hint="Don't trust this box with your work, or log in with ssh and see what it does.",
    )


class _After:
    """A stream without what came before a mark: noise of rc files, which has its limits."""

    def __init__(self, stream: Stream, mark: bytes, label: str) -> None:
        self._stream = stream
        self._mark: bytes | None = mark
        self._label = label
        self._held = b""
        self._noise = 0
        self._is_late = False
        self._timer = threading.Timer(MARK_S, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def read(self, n: int) -> bytes:
        while self._mark is not None:
            piece = self._stream.read(n)
            if self._is_late:
                raise self._no_answer(f"it began no answer within {MARK_S:g} s.")
            if not piece:
                self._timer.cancel()
                return b""
            self._held += piece
            _, found, rest = self._held.partition(self._mark)
            if found:
                self._timer.cancel()
                self._mark, self._held = None, b""
                if rest:
                    return rest
                continue
            self._noise += len(piece)
            if self._noise > _MOST_NOISE:
                self.close()
                limit = _MOST_NOISE // 2**20
                raise self._no_answer(f"it printed more than {limit} MiB instead of an answer.")
            if len(self._held) > _HELD:
                self._held = self._held[-len(self._mark) :]
        return self._stream.read(n)

    def _give_up(self) -> None:
        self._is_late = True
        self._stream.close()

    def _no_answer(self, what: str) -> NoAnswer:
        return NoAnswer(what, where=self._label, hint="Log in with ssh and look at its rc files.")

    def read_err(self) -> bytes:
        return self._stream.read_err()

    def write(self, b: bytes) -> None:
        self._stream.write(b)

    def close_write(self) -> None:
        self._stream.close_write()

    def exit_status(self) -> int | None:
        return self._stream.exit_status()

    def close(self) -> None:
        self._timer.cancel()
        self._stream.close()


def after_mark(stream: Stream, mark: str, label: str) -> Stream:
    """`stream` without all that comes before a line with `mark`: noise of rc files.

    Reading it raises NoAnswer where the mark does not come.
    """
    return _After(stream, f"\n{mark}\n".encode(), label)
