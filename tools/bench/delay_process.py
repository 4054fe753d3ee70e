"""A TCP proxy that adds any latency to a box, at full bandwidth.

`python -m tools.bench.delay_process HOST ADDRESS PORT RTT` prints the port on
HOST that it listens on and runs until standard input ends. Each piece is stamped
on arrival and passed on half a round trip later, however many are in flight, so
throughput is not limited by sleeping. The handshake costs its round trip too.
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque

_LOWEST_WINDOW = 8 << 20
_BANDWIDTH = 400 << 20


class _Pipe:
    """One direction: pieces are queued until they are due, then go to the far end."""

    def __init__(self, delay: float, window: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._delay = delay
        self._window = window
        self._line: deque[tuple[float, bytes | None]] = deque()
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._blocked = False
        self.earliest = 0.0
        self.near: asyncio.Transport | None = None
        self.far: asyncio.Transport | None = None

    def put(self, piece: bytes | None) -> None:
        """Queue a piece from the near end; None means end of file."""
        due = max(self._loop.time() + self._delay, self.earliest)
        self._line.append((due, piece))
        self._size += len(piece or b"")
        if self._size > self._window and self.near is not None:
            self.near.pause_reading()
        self._arm()

    def block(self, blocked: bool) -> None:
        """Note that the far end is full (or no longer is)."""
        self._blocked = blocked
        self._arm()

    def connected(self, far: asyncio.Transport) -> None:
        self.far = far
        self._arm()

    def _arm(self) -> None:
        if self._timer is None and self._line and self.far is not None and not self._blocked:
            self._timer = self._loop.call_at(self._line[0][0], self._pass_on)

    def _pass_on(self) -> None:
        self._timer = None
        now = self._loop.time()
        assert self.far is not None
        while self._line and self._line[0][0] <= now and not self._blocked:
            _, piece = self._line.popleft()
            if self.far.is_closing():
                continue
            if piece is None:
                self.far.write_eof()
                continue
            self._size -= len(piece)
            self.far.write(piece)
        near = self.near
        if near is not None and not near.is_closing() and self._size <= self._window // 2:
            near.resume_reading()
        self._arm()


class _End(asyncio.Protocol):
    """One end of a connection: what it receives goes to `out`, what it sends is from `into`."""

    def __init__(self, out: _Pipe, into: _Pipe) -> None:
        self._out = out
        self._into = into
        self.other: _End | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._out.near = transport
        self._into.connected(transport)

    def data_received(self, data: bytes) -> None:
        self._out.put(data)

    def eof_received(self) -> bool:
        self._out.put(None)
        return True

    def pause_writing(self) -> None:
        self._into.block(True)

    def resume_writing(self) -> None:
        self._into.block(False)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            if exc is None:
                self.other.transport.close()
            else:
                self.other.transport.abort()


async def _accept(near: _End, address: str, port: int, far: _End, wait: float) -> None:
    await asyncio.sleep(wait)
    try:
        await asyncio.get_running_loop().create_connection(lambda: far, address, port)
    except OSError:
        assert near.transport is not None
        near.transport.abort()


async def _serve(host: str, address: str, port: int, rtt: float) -> None:
    loop = asyncio.get_running_loop()
    window = max(_LOWEST_WINDOW, int(_BANDWIDTH * rtt / 2))
    tasks: set[asyncio.Task[None]] = set()

    def incoming() -> _End:
        there, back = _Pipe(rtt / 2, window), _Pipe(rtt / 2, window)
        there.earliest = loop.time() + 1.5 * rtt
        near, far = _End(there, back), _End(back, there)
        near.other, far.other = far, near
        task = loop.create_task(_accept(near, address, port, far, 1.5 * rtt))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return near

    server = await loop.create_server(incoming, host, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
