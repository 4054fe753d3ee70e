"""A port of this machine that leads to a port of a box, over the login that is there.

It listens on this machine's loopback alone. Who connects while the link is lost waits for it to
come back; what was connected is cut off, and connects again by itself if it is a browser.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable

import paramiko

from bootstrap.errors import BoxstrapError, UnreachableError
from bootstrap.link.errors import LinkLost
from bootstrap.link.forward import Forward
from bootstrap.link.reconnecting import ReconnectingLink
from bootstrap.link.wire import PIECE, Pipe, Wire

_CLOSED_PORT = 9
"""`discard`: nothing listens there, so that nothing is disturbed."""
MOST = 64
"""Connections at a time; more wait. A page of the box decides how many there are."""
PATIENCE_S = 30.0
"""How long a new connection waits for a lost link, in seconds."""
_TICK_S = 0.2
_CUT = (OSError, EOFError, paramiko.SSHException)
"""How a connection ends before its time, on either side."""
_NEAR = 20
"""Ports tried after the one wished for, before any free one is taken."""
_LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
"""Browsers try both for a name below `localhost`: whoever had the other one would be asked too."""
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Tunnel:
    """One open port here. `close` ends it."""

    def __init__(
        self, link: ReconnectingLink, forward: Forward, warn: Callable[[str], None]
    ) -> None:
        """Raises BoxstrapError where this machine has no free port."""
        self.forward = forward
        """Where it leads; replaced where the server has moved."""
        self._link = link
        self._warn = warn
        self._closed = threading.Event()
        self._places = threading.BoundedSemaphore(MOST)
        self._refused = False
        self.port, self._listeners = _listen(forward.here)
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Take no connection any more."""
        self._closed.set()
        for listener in self._listeners:
            _end(listener)

    def _accept(self, listener: socket.socket) -> None:
        while not self._closed.is_set():
            self._places.acquire()
            try:
                here, _ = listener.accept()
            except OSError:
                self._places.release()
                self._closed.wait(_TICK_S)  # out of files, for example: others may end
                continue
            threading.Thread(target=self._serve, args=(here,), daemon=True).start()

    def _serve(self, here: socket.socket) -> None:
        try:
            reached = self._connect()
            if reached is None:
                _reset(here)
            else:
                _carry(here, *reached)
        finally:
            here.close()
            self._places.release()

    def _connect(self) -> tuple[Pipe, Wire] | None:
        until = time.monotonic() + PATIENCE_S
        while not self._closed.is_set():
            wire, forward = self._link.wire, self.forward
            try:
                pipe = wire.connect(forward.host, forward.port)
            except UnreachableError:
                if wire.alive() or time.monotonic() > until:
                    return None
                self._closed.wait(_TICK_S)
            except OSError:
                if not self._refused:
                    self._refused = True
                    where = f"port {forward.port} of {forward.host}"
                    self._warn(f"on the box nothing answers at {where}; trying at each connection")
                return None
            else:
                self._refused = False
                return pipe, wire
        return None


def _carry(here: socket.socket, pipe: Pipe, wire: Wire) -> None:
    """Pass on what comes, both ways, until both have ended or one was cut off."""

    def up() -> None:
        if not _copy(here.recv, pipe.sendall, pipe.shutdown_write):
            _close(pipe)

    def end() -> None:
        # What was cut off must not look like an end.
        if not wire.alive():
            raise EOFError
        here.shutdown(socket.SHUT_WR)

    sending = threading.Thread(target=up, daemon=True)
    sending.start()
    if not _copy(pipe.recv, here.sendall, end):
        _reset(here)
    sending.join()
    _close(pipe)


def forwards(wire: Wire) -> bool:
    """Whether the box lets connections through to its own ports. Raises LinkLost."""
    try:
        _close(wire.connect("127.0.0.1", _CLOSED_PORT))
    except PermissionError:
        return False
    except OSError:
        return True
    return True


def hold(link: ReconnectingLink, back: Callable[[], None]) -> None:
    """Log in again each time the link is lost, and call `back` then; until somebody ends it.

    Raises as `ReconnectingLink.reconnect`.
    """
    while True:
        while link.wire.alive():
            time.sleep(_TICK_S)
        link.reconnect(LinkLost(link.label))
        try:
            back()
        except LinkLost:
            continue


def _copy(
    read: Callable[[int], bytes], write: Callable[[bytes], object], end: Callable[[], object]
) -> bool:
    """All that `read` gives; whether it came to its end."""
    try:
        while piece := read(PIECE):
            write(piece)
        end()
    except _CUT:
        return False
    return True


def _close(pipe: Pipe) -> None:
    with contextlib.suppress(*_CUT):
        pipe.close()


def _end(sock: socket.socket) -> None:
    """Close it, and wake who waits at it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def _reset(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.shutdown(socket.SHUT_RD)
    sock.close()


def _listen(wished: int) -> tuple[int, list[socket.socket]]:
    """The port wished for, or else one that is free."""
    for port in (*range(wished, min(wished + _NEAR, 65536)), *[0] * _NEAR):
        with contextlib.suppress(OSError):
            return _listen_at(port)
    raise BoxstrapError(f"no port is free on this machine, from {wished} on.")


def _listen_at(port: int) -> tuple[int, list[socket.socket]]:
    """Listen at `port` of each loopback address that there is; 0 is any. Raises OSError."""
    listeners: list[socket.socket] = []
    try:
        for family, address in _LOOPBACK:
            try:
                listeners.append(_listener(family, address, port))
            except OSError as error:
                if not listeners or error.errno not in _NO_IPV6:
                    raise
            port = listeners[0].getsockname()[1]
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return port, listeners


def _listener(family: int, address: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if sys.platform == "linux":  # elsewhere it would take a port that another program has
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(MOST)
    except OSError:
        listener.close()
        raise
    return listener
