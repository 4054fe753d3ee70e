"""Following a file on the box as it grows, across lost links, without a lost or doubled byte."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from bootstrap.errors import StepFailedError
from bootstrap.events import Event, EventLines
from bootstrap.link.errors import LinkLost
from bootstrap.link.exchange import shell_command
from bootstrap.link.steady import SteadyLink
from bootstrap.link.wire import Stream, Wire
from bootstrap.talk.question import question
from bootstrap.talk.watch import EndWatch

_MOST_NOISE = 1024 * 1024


def grow(wire: Wire, file: str, *, workdir: str = "", start: int = 0) -> Stream:
    """A stream of `file` (below boxstrap's folder) from byte `start` on; it ends with the link.

    Raises LinkLost; NoAnswer is never raised: a file that isn't there yet is waited for.
    """
    sentinel = secrets.token_hex(16)
    asked = question("follow", workdir=workdir, file=file, **{"from": start + 1})
    stream = wire.start(shell_command(f"echo\necho {sentinel}\n{asked}"))
    return after_mark(stream, sentinel)


def follow_events(link: SteadyLink, setup: str, *, workdir: str) -> Iterator[Event]:
    """The events of a setup from its first on, each once and in order, up to its `done`.

    A lost link is taken up again where it broke (`SteadyLink.again`, which may
    give up with UnreachableError). Raises StepFailedError where the setup died without a word.
    """
    lines = EventLines()
    last = 0
    asked = question("setup_end", workdir=workdir, setup_id=setup)
    while True:
        try:
            wire = link.wire
            stream = grow(
                wire, f"setups/{setup}/events.jsonl", workdir=workdir, start=lines.consumed
            )
            end = EndWatch(wire, stream, asked)
            while piece := stream.read(64 * 1024):
                for event in lines.feed(piece):
                    if event.seq <= last or event.setup != setup:
                        continue
                    last = event.seq
                    yield event
                    if event.event == "done":
                        end.stop()
                        stream.close()
                        return
                end.seen = lines.consumed
            if end.reached:
                raise _gone(link.label)
            raise LinkLost(link.label, "the box stopped telling how the setup goes")
        except LinkLost as lost:
            lines.link_lost()
            link.again(lost)


def _gone(label: str) -> StepFailedError:
    return StepFailedError(
        "the setup's process on the box is gone: it was killed, or the box restarted.",
        where=label,
        next_="Run the same command again: it goes on where it stopped.",
    )


class _After:
    """A stream without what came before a mark: noise of rc files."""

    def __init__(self, stream: Stream, mark: bytes) -> None:
        self._stream = stream
        self._mark: bytes | None = mark
        self._held = b""

    def read(self, n: int) -> bytes:
        while self._mark is not None:
            piece = self._stream.read(n)
            if not piece:
                return b""
            self._held += piece
            _, found, rest = self._held.partition(self._mark)
            if found:
                self._mark, self._held = None, b""
                if rest:
                    return rest
            elif len(self._held) > _MOST_NOISE:
                self._held = self._held[-len(self._mark) :]
        return self._stream.read(n)

    def read_err(self) -> bytes:
        return self._stream.read_err()

    def write(self, b: bytes) -> None:
        self._stream.write(b)

    def close_write(self) -> None:
        self._stream.close_write()

    def exit_status(self) -> int | None:
        return self._stream.exit_status()

    def close(self) -> None:
        self._stream.close()


def after_mark(stream: Stream, mark: str) -> Stream:
    """`stream` without all that comes before a line with `mark`: noise of rc files."""
    return _After(stream, f"\n{mark}\n".encode())
