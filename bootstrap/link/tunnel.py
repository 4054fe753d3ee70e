"""A local port that leads to a port of a box, or to one that it reaches, over the existing login.

It listens only on this machine's loopback. When the link is lost, new connections wait for it to
come back; existing ones are cut off (a browser reconnects on its own).
"""

import contextlib
import errno
import hashlib
import re
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import paramiko

from bootstrap.errors import BoxstrapError, UnreachableError, UsageError
from bootstrap.link.reconnecting import ReconnectingLink
from bootstrap.link.wire import PIECE, LinkLost, Pipe, Wire

_PART = r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]"
_FORM = re.compile(
    rf"(?:(?:(?P<bind>{_PART}):)?(?P<here>[0-9]+):(?P<host>{_PART}):|(?P<near>[0-9]+):)?(?P<there>[0-9]+)"
)
_HERE_ALONE = (None, "localhost", "127.0.0.1", "[::1]")
_FORMS = (
    "A tunnel is PORT of the box, HERE:PORT, or as in ssh's -L: HERE:ADDRESS:PORT, "
    "as in 8080, 9000:8080, 8080:localhost:8080."
)
_LONGEST_LABEL = 63


@dataclass(frozen=True)
class Forward:
    """`port` of `host`, as the box sees it; `here` is the preferred port on this machine."""

    here: int
    host: str
    port: int


def parse_forward(text: str) -> Forward:
    """Parse `text`. Raises UsageError with the forms to use."""
    found = _FORM.fullmatch(text)
    if not found:
        raise UsageError(f"{text!r} is no port to open a tunnel to.", hint=_FORMS)
    if found["bind"] not in _HERE_ALONE:
        raise UsageError(
            f"{text}: boxstrap opens tunnels only on this machine's loopback, not on "
            f"{found['bind']}.",
            hint="ssh itself opens it there: ssh -g -L …",
        )
    port = _port(text, found["there"])
    here = found["here"] or found["near"]
    host = (found["host"] or "localhost").strip("[]")
    return Forward(_port(text, here) if here else port, host, port)


def _port(text: str, digits: str) -> int:
    if len(digits) > 5 or not 1 <= int(digits) <= 65535:
        raise UsageError(f"{text}: {digits[:20]} is no port (1 to 65535).", hint=_FORMS)
    return int(digits)


def host_of(box: str, server: str = "") -> str:
    """Return the name below `localhost` by which a browser reaches the box called `box`.

    Each box has its own name, of one label, so that browsers keep their cookies apart; and so has
    each `server` that asks for a login: browsers give a cookie to all ports of a name, and who
    listens at another port of the box may be another user of it.
    """
    of = f"{box} {server}".strip()
    label = re.sub(r"[^a-z0-9]+", "-", of.lower()).strip("-")
    if label != of:
        mark = hashlib.sha256(of.encode()).hexdigest()[:6]
        label = f"{label[: _LONGEST_LABEL - 7]}-{mark}".strip("-")
    return f"{label}.localhost"


_CLOSED_PORT = 9  # `discard`: nothing listens there, so a trial connection disturbs nothing
MOST = 64
"""Connections at a time; more have to wait. A web page on the box decides how many it opens."""
PATIENCE_S = 30.0  # how long a new connection waits for a lost link, in seconds
_TICK_S = 0.2
_CUT = (OSError, EOFError, paramiko.SSHException)
"""Errors of a connection that is cut off, on either side."""
_NEAR = 20  # ports tried from the preferred one on, before any free one is taken
_LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
"""Both, since browsers try both for a name below `localhost`: another program must not have one."""
_NO_IPV6 = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Tunnel:
    """One open local port. `close` ends it."""

    forward: Forward  # where it leads; replaced if the server on the box has moved
    port: int

    def __init__(
        self, link: ReconnectingLink, forward: Forward, warn: Callable[[str], None], title: str = ""
    ) -> None:
        """Start to listen; `title`: what it leads to. Raises BoxstrapError if this machine has no
        free port."""
        self.forward = forward
        self._who = f"{title} no longer" if title else "nothing"
        self._link = link
        self._warn = warn
        self._closed = threading.Event()
        self._places = threading.BoundedSemaphore(MOST)
        self.refused = False  # whether nothing answered at the last connection
        self.port, self._listeners = _listen(forward.here)
        for listener in self._listeners:
            threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        self._closed.set()
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while not self._closed.is_set():
            self._places.acquire()
            try:
                here, _ = listener.accept()
            except OSError:
                self._places.release()
                self._closed.wait(_TICK_S)  # e.g. out of file descriptors: others may close
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
                if not self.refused:
                    self.refused = True
                    where = f"port {forward.port} of {forward.host}"
                    told = f"on the box {self._who} answers at {where}"
                    self._warn(f"{told}; trying at each connection")
                return None
            else:
                self.refused = False
                return pipe, wire
        return None


def _carry(here: socket.socket, pipe: Pipe, wire: Wire) -> None:
    """Copy in both directions until both have ended or one was cut off."""

    def up() -> None:
        if not _copy(here.recv, pipe.sendall, pipe.shutdown_write):
            _close(pipe)

    def end() -> None:
        # A connection that was cut off must not look like a normal end.
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
    """Whether the box's sshd allows forwarding to its own ports. Raises LinkLost."""
    try:
        _close(wire.connect("127.0.0.1", _CLOSED_PORT))
    except OSError as error:
        return not isinstance(error, PermissionError)
    return True


def hold(link: ReconnectingLink, back: Callable[[], None]) -> None:
    """Log in again each time the link is lost, then call `back`; runs until interrupted. Raises as
    `ReconnectingLink.reconnect`."""
    while True:
        while link.wire.alive():
            time.sleep(_TICK_S)
        link.reconnect(LinkLost(link.label))
        with contextlib.suppress(LinkLost):
            back()


def _copy(
    read: Callable[[int], bytes], write: Callable[[bytes], object], end: Callable[[], object]
) -> bool:
    """Copy all that `read` gives; returns whether it reached the end."""
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


def _reset(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.shutdown(socket.SHUT_RD)
    sock.close()


def _listen(wished: int) -> tuple[int, list[socket.socket]]:
    """Listen on the preferred port, or else on a free one."""
    for port in (*range(wished, min(wished + _NEAR, 65536)), *[0] * _NEAR):
        with contextlib.suppress(OSError):
            return _listen_at(port)
    raise BoxstrapError(f"no port is free on this machine, from {wished} on.")


def is_free(port: int) -> bool:
    """Whether this port of this machine can be listened at now."""
    try:
        _, listeners = _listen_at(port)
    except OSError:
        return False
    for listener in listeners:
        listener.close()
    return True


def _listen_at(port: int) -> tuple[int, list[socket.socket]]:
    """Listen on `port` of each available loopback address; 0 means any. Raises OSError."""
    listeners: list[socket.socket] = []
    with contextlib.ExitStack() as on_error:
        for family, address in _LOOPBACK:
            try:
                listeners.append(on_error.enter_context(_listener(family, address, port)))
            except OSError as error:
                if not listeners or error.errno not in _NO_IPV6:
                    raise
            port = listeners[0].getsockname()[1]
        on_error.pop_all()
    return port, listeners


def _listener(family: int, address: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if sys.platform == "linux":  # on others it would take a port that another program uses
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(MOST)
    except OSError:
        listener.close()
        raise
    return listener
