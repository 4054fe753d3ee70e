"""Watching for the end of what is followed: a file does not say that nobody writes it any more."""

from __future__ import annotations

import threading

from bootstrap.errors import BoxstrapError
from bootstrap.link.exchange import exchange
from bootstrap.link.wire import Stream, Wire

EVERY_S = 1.0


class EndWatch(threading.Thread):
    """Asks now and then, over the same login; closes the stream once all was read.

    `asked` is a question whose answer is `running`, or another word, then a tab
    and the size of the file in bytes.
    """

    def __init__(self, wire: Wire, stream: Stream, asked: str) -> None:
        super().__init__(name="end-watch", daemon=True)
        self.seen = 0
        """Bytes of the file that were read so far; the reader keeps it."""
        self.reached = False
        """Whether the writer has ended and everything it wrote was read."""
        self._wire = wire
        self._stream = stream
        self._asked = asked
        self._done = threading.Event()
        self.start()

    def run(self) -> None:
        """Ask, once nothing came for a while, until the end, or until the link is gone."""
        before = -1
        while not self._done.wait(EVERY_S) and self._wire.alive():
            if self.seen != before:
                before = self.seen
                continue
            try:
                state, _, size = exchange(self._wire, self._asked, timeout=30).partition(b"\t")
            except BoxstrapError:
                return
            if state != b"running" and size.strip().isdigit() and self.seen >= int(size):
                self.reached = True
                self._stream.close()
                return

    def stop(self) -> None:
        """The reader has ended by itself."""
        self._done.set()
