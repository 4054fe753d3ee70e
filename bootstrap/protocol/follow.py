"""Read files on the box: the end of one, or all of it as it grows, each byte once, across links."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from bootstrap.errors import StepFailedError, UnreachableError
from bootstrap.events import Event, EventLines
from bootstrap.link.answers import number
from bootstrap.link.errors import LinkLost, NoAnswer
from bootstrap.link.exchange import AnswerStream, exchange, stream_answer
from bootstrap.link.reconnecting import Backoff, ReconnectingLink
from bootstrap.link.wire import Stream, Wire
from bootstrap.protocol.query import BoxRedaction, build_query
from bootstrap.protocol.run import GOES_ON
from bootstrap.text.sanitize import sanitize

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Bytes of events that one setup may send: two events a second for most of a day."""
MOST_REFUSED = 100_000
"""Limit of lines that are not valid events; another boxstrap version may write some."""
EVERY_S = 1.0
ANSWER_S = 30.0
"""How long one answer may take, in seconds."""
_MOST_UNANSWERED = 3
_MOST_WAITED = 3
_LONGEST = 200
_LONGEST_SECRET = 256 * 1024
"""Upper bound for a secret in its longest (encoded) form, in bytes."""
_LOOK = "What runs on the box goes on. Log in with ssh and see what it does."


def file_tail(wire: Wire, file: str, workdir: str, most: int, redact: Sequence[str] = ()) -> bytes:
    """Return the last `most` bytes of a file in boxstrap's folder; empty if it doesn't exist.

    The box redacts the secrets that `redact` names. Raises LinkLost, NoAnswer.
    """
    query = build_query("tail", BoxRedaction(redact), workdir=workdir, file=file, bytes=most)
    return exchange(wire, query, timeout=60)


def follow_file(
    wire: Wire, file: str, *, workdir: str = "", start: int = 0, redact: Sequence[str] = ()
) -> AnswerStream:
    """Stream `file` (in boxstrap's folder) from byte `start` on, until the link ends.

    The box redacts the secrets that `redact` names, and keeps the number of bytes.
    Waits for a file that doesn't exist yet. Raises LinkLost; reading raises NoAnswer
    if the box's answer is something else.
    """
    # The link may have broken inside a secret, so the box must read that secret from its start.
    skip = min(start, _LONGEST_SECRET) if redact else 0
    there = BoxRedaction(redact, skip, same_length=True)
    query = build_query("follow", there, workdir=workdir, file=file, **{"from": start - skip + 1})
    return stream_answer(wire, query)


class CompletionPoller(threading.Thread):
    """Poll over the same login whether the writer has ended; close the stream once all is read.

    The answer to `query` is a state (`running`, `queued`, or other words), a tab, the file's size
    in bytes, and optionally a tab and the time when the writer ended. After three unanswered polls
    in a row the box is given up: the stream is closed, and `trouble` says why.
    """

    def __init__(
        self, wire: Wire, stream: Stream | AnswerStream, query: str, seen: int = 0
    ) -> None:
        super().__init__(name="end-watch", daemon=True)
        self.seen = seen
        """Bytes of the file that were read so far; the reader updates it."""
        self.reached = False
        """Whether the writer has ended and everything it wrote was read."""
        self.state = ""
        """The writer's last reported state, in the box's words."""
        self.ended: int | None = None
        """When it ended, on the box's clock, if the box reports that."""
        self.is_stuck = False
        """Whether the writer ended but its last bytes don't arrive: read the file again."""
        self.trouble: UnreachableError | None = None
        """Why the box was given up."""
        self._wire = wire
        self._stream = stream
        self._query = query
        self._done = threading.Event()
        self.start()

    def run(self) -> None:
        """Poll whenever no new bytes arrived, until the end, or until the link is gone."""
        before, unanswered, waited = -1, 0, 0
        while not self._done.wait(EVERY_S) and self._wire.alive():
            if self.seen != before:
                before, waited = self.seen, 0
                continue
            try:
                self.reached = self._is_over()
                unanswered = 0
                waited += self.state != "running"
                self.is_stuck = not self.reached and waited == _MOST_WAITED
            except LinkLost:
                return
            except UnreachableError as error:
                unanswered += 1
                self.trouble = error if unanswered == _MOST_UNANSWERED else None
            if self.reached or self.is_stuck or self.trouble:
                self._stream.close()
                return

    def _is_over(self) -> bool:
        answer = sanitize(exchange(self._wire, self._query, timeout=ANSWER_S)[:_LONGEST])
        self.state, size, ended = [*answer.strip().split("\t"), "", ""][:3]
        written, self.ended = number(size), number(ended)
        if written is None:
            raise NoAnswer("its answers make no sense.", where=self._wire.label, hint=_LOOK)
        return self.state not in GOES_ON and self.seen >= written

    def stop(self) -> None:
        """Stop polling: the reader is done."""
        self._done.set()


def follow_events(link: ReconnectingLink, setup: str, *, workdir: str) -> Iterator[Event]:
    """Yield all events of a setup, each once and in order, up to its `done`.

    After a lost link, reading continues where it broke (`ReconnectingLink.reconnect`, which may
    give up with UnreachableError). Raises StepFailedError if the setup died without reporting it,
    NoAnswer if the box sends too much, or stops answering; CancelledError.
    """
    lines, backoff = EventLines(), Backoff(cancel=link.cancel)
    last = told = 0
    query = build_query("setup_end", workdir=workdir, setup_id=setup)
    while True:
        try:
            wire = link.wire
            stream = follow_file(
                wire, f"setups/{setup}/events.jsonl", workdir=workdir, start=lines.consumed
            )
            # Count what earlier links read: nothing more may arrive.
            end = CompletionPoller(wire, stream, query, seen=lines.consumed)
            while piece := stream.read(64 * 1024):
                told += len(piece)
                if told > MAX_EVENT_BYTES or lines.refused > MOST_REFUSED:
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
            raise LinkLost(link.label, "the box stopped reporting on the setup")
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
        "it sends more events than any setup has.",
        where=label,
        hint="Don't trust this box with your work, or log in with ssh and see what it does.",
    )
