"""Watching for the end of what is followed: a file does not say that nobody writes it any more."""

from __future__ import annotations

import threading

from bootstrap.errors import UnreachableError
from bootstrap.link.errors import LinkLost, NoAnswer
from bootstrap.link.exchange import exchange
from bootstrap.link.parsing import number
from bootstrap.link.wire import Stream, Wire
from bootstrap.text.sanitize import sanitize

EVERY_S = 1.0
ANSWER_S = 30.0
"""How long one answer may take, in seconds."""
_MOST_UNANSWERED = 3
_LONGEST = 200
_LOOK = "What runs on the box goes on. Log in with ssh and see what it does."


class CompletionPoller(threading.Thread):
    """Asks now and then, over the same login; closes the stream once all was read.

    `query` is a question whose answer is `running`, or other words, then a tab and the
    size of the file in bytes, then perhaps a tab and when the writer ended. A box that leaves
    it unanswered three times in a row is given up: the stream is closed, and `trouble` says why.
    """

    def __init__(self, wire: Wire, stream: Stream, query: str, seen: int = 0) -> None:
        super().__init__(name="end-watch", daemon=True)
        self.seen = seen
        """Bytes of the file that were read so far; the reader keeps it."""
        self.reached = False
        """Whether the writer has ended and everything it wrote was read."""
        self.state = ""
        """The writer's state when it had ended, as the box words it."""
        self.ended: int | None = None
        """When it ended, on the box's clock, where the box tells that."""
        self.trouble: UnreachableError | None = None
        """Why nothing more is to be expected of this box."""
        self._wire = wire
        self._stream = stream
        self._query = query
        self._done = threading.Event()
        self.start()

    def run(self) -> None:
        """Ask, once nothing came for a while, until the end, or until the link is gone."""
        before, unanswered = -1, 0
        while not self._done.wait(EVERY_S) and self._wire.alive():
            if self.seen != before:
                before = self.seen
                continue
            try:
                self.reached = self._is_over()
                unanswered = 0
            except LinkLost:
                return
            except UnreachableError as error:
                unanswered += 1
                self.trouble = error if unanswered == _MOST_UNANSWERED else None
            if self.reached or self.trouble:
                self._stream.close()
                return

    def _is_over(self) -> bool:
        answer = sanitize(exchange(self._wire, self._query, timeout=ANSWER_S)[:_LONGEST])
        self.state, size, ended = [*answer.strip().split("\t"), "", ""][:3]
        written, self.ended = number(size), number(ended)
        if written is None:
            raise NoAnswer("its answers make no sense.", where=self._wire.label, hint=_LOOK)
        return self.state != "running" and self.seen >= written

    def stop(self) -> None:
        """The reader has ended by itself."""
        self._done.set()
