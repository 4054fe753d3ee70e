"""Answer the frames of a transfer, in order, until they end.

It alternates between reading and writing, and buffers nothing in flight: the other side reads
while it writes. After an hour without input it ends.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from typing import Any

from .frames import pack_frame, read_frame
from .give import Giver
from .results import ResultReporter
from .take import Taker

VERSION = 1
HELD = 256 * 1024  # bytes of answers that are sent together
EVERY = 0.2  # seconds that an answer may wait for others
GULP = 1 << 20  # bytes read at once
BEAT = 5.0  # seconds without output after which a sign of life is sent
LITTLE = 64  # bytes read at once for a header, if long data follows
LONG = 32 * 1024
PATIENCE = 3600  # seconds


class Channel:
    """Standard input and output."""

    def __init__(self) -> None:
        self.came = bytearray()
        self.gulp = GULP
        self.held: list[bytes] = []
        self.size = 0
        self.flushed = time.monotonic()
        self.before: Callable[[], None] = lambda: None  # called before answers are sent

    def read(self, count: int) -> bytes:
        """Return `count` bytes; fewer at the end. Long data is read in place."""
        if count >= LONG:
            return self.read_long(count)  # type: ignore[return-value]  # used like bytes
        while len(self.came) < count and self.await_more():
            piece = os.read(0, self.gulp)
            if not piece:
                break
            self.came += piece
        taken = bytes(memoryview(self.came)[:count])
        del self.came[:count]
        self.gulp = GULP
        return taken

    def read_long(self, count: int) -> bytearray:
        """As `read`, without a copy; the next data is probably long too."""
        taken = self.came[:count]
        del self.came[:count]
        done = len(taken)
        taken.extend(bytes(count - done))
        with memoryview(taken) as view:
            while done < count and self.await_more():
                more = os.readv(0, [view[done:]])
                if not more:
                    break
                done += more
        del taken[done:]
        self.gulp = LITTLE
        return taken

    def await_more(self) -> bool:
        """Wait for input; return whether there is more. Held answers are sent before it waits.

        While there is more to read, answers are collected for a moment: one for each file would
        be a packet each, and wake the other side each time.
        """
        if self.held and (self.is_late() or not select.select([0], [], [], 0)[0]):
            self.flush()
        return bool(select.select([0], [], [], PATIENCE)[0])

    def is_late(self) -> bool:
        """Return whether held answers have waited long enough."""
        return time.monotonic() - self.flushed > EVERY

    def say(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Queue a frame, to be sent soon."""
        frame = pack_frame(header, body)
        self.held.append(frame)
        self.size += len(frame)
        if self.size >= HELD:
            self.flush()

    def beat(self) -> None:
        """Send a sign of life, if nothing was sent for a while."""
        if time.monotonic() - self.flushed > BEAT:
            self.say({"v": VERSION})
            self.flush()

    def flush(self) -> None:
        """Send the held answers."""
        self.before()
        rest = memoryview(b"".join(self.held))
        self.held, self.size, self.flushed = [], 0, time.monotonic()
        while rest:
            rest = rest[os.write(1, rest) :]


def serve(home: bytes) -> None:
    """Answer requests until the input ends."""
    channel = Channel()
    taker = Taker(home, channel.say, channel.beat)
    teller = ResultReporter(home, channel.say, channel.beat)
    giver = Giver(home, channel.say, teller.between)
    channel.before = taker.rest
    plain = {
        **{word: getattr(taker, word) for word in ("to", "look", "compare", "folders", "done")},
        "get": giver.get,
        "results": teller.results,
    }
    channel.say({"v": VERSION})
    while not taker.is_over:
        frame = read_frame(channel.read)
        if frame is None:
            break
        header, body = frame
        if not header:
            taker.block(body)
        elif header["op"] == "put":
            taker.put(header, body)
        elif header["op"] == "end":
            taker.end()
            channel.say({"end": True})
        else:
            plain[header["op"]](header)
    channel.flush()


def main() -> None:
    """Serve a transfer; the argument is boxstrap's folder on the box."""
    try:
        serve(os.fsencode(sys.argv[1]))
    except BrokenPipeError:
        os._exit(0)
