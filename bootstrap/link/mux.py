"""Commands over a shared connection: the multiplexing protocol of OpenSSH, spoken from here.

A master (`ssh -M`) that is logged in listens at a control socket. Each command is a connection to
that socket, over which the master gets the command and three descriptors; it copies between these
and the box by itself. No library is needed, so a command starts faster than with a login of its
own, and no program is started. The protocol is OpenSSH's PROTOCOL.mux, version 4.

A session that the box opened runs its command; nothing was asked of a box that did not. So where it
takes long a login is made meanwhile, and the first of the two that is there is used.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from collections.abc import Callable, Sequence

from bootstrap.link.reconnecting import DeferredLogin
from bootstrap.link.wire import PIECE, ErrorTail, LinkLost, Pipe, Stream, Wire, read_exactly

ANSWERS_WITHIN_S = 0.25
"""How long a box may take to open a session before a login is made as well, in seconds."""
_TICK_S = 0.02
_LOCAL_S = 2.0
"""How long the master itself, which is on this machine, may take to answer, in seconds."""
_LONGEST = 256 * 1024
_VERSION = 4
_HELLO = 0x00000001
_NEW_SESSION = 0x10000002
_ALIVE_CHECK = 0x10000004
_TERMINATE = 0x10000005
_EXIT, _ALIVE, _OPENED = 0x80000004, 0x80000005, 0x80000006
_NO_ESCAPE = 0xFFFFFFFF


class NotSharedError(Exception):
    """The shared connection can't be used: it is gone, stuck, or the box allows no more of it."""


class Control:
    """One connection to the master. Raises NotSharedError."""

    def __init__(self, path: str, timeout: float = _LOCAL_S) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(path)
            self._send(_HELLO, _VERSION)
            if self._receive() != (_HELLO, struct.pack(">I", _VERSION)):
                raise NotSharedError("it speaks another version")
        except OSError as error:
            self.close()
            raise NotSharedError(str(error)) from error
        except NotSharedError:
            self.close()
            raise

    def ask(self, kind: int, *fields: int | str, fds: Sequence[int] = ()) -> None:
        """Send a request, and descriptors after it."""
        try:
            self._send(kind, 0, *fields)
            for fd in fds:
                socket.send_fds(self._socket, [b"\0"], [fd])
        except OSError as error:
            raise NotSharedError(str(error)) from None

    def has_answer(self, timeout: float) -> bool:
        """Wait at most that long for the next message, or the end."""
        try:
            return bool(select.select([self._socket], [], [], timeout)[0])
        except (OSError, ValueError) as error:  # it was closed here
            raise NotSharedError(str(error)) from None

    def answer(self, timeout: float | None = _LOCAL_S) -> tuple[int, bytes]:
        """Return the kind of the next message, and what follows its first number."""
        try:
            self._socket.settimeout(timeout)
            kind, body = self._receive()
        except OSError as error:
            raise NotSharedError(str(error)) from None
        return kind, body[4:]

    def close(self) -> None:
        """Close it, which ends its session, and wake up whoever waits for an answer."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _send(self, *fields: int | str) -> None:
        parts = []
        for field in fields:
            if isinstance(field, int):
                parts.append(struct.pack(">I", field))
            else:
                data = field.encode(errors="surrogateescape")
                parts += [struct.pack(">I", len(data)), data]
        body = b"".join(parts)
        self._socket.sendall(struct.pack(">I", len(body)) + body)

    def _receive(self) -> tuple[int, bytes]:
        (length,) = struct.unpack(">I", read_exactly(self._socket, 4))
        if not 4 <= length <= _LONGEST:
            raise NotSharedError("it does not speak this protocol")
        message = read_exactly(self._socket, length)
        return struct.unpack(">I", message[:4])[0], message[4:]


def is_alive(path: str) -> bool:
    """Whether a master listens there; whether its box still answers is another question."""
    with contextlib.suppress(NotSharedError):
        control = Control(path)
        try:
            control.ask(_ALIVE_CHECK)
            return control.answer()[0] == _ALIVE
        finally:
            control.close()
    return False


def end(path: str) -> None:
    """End the master, and all that goes over its connection."""
    with contextlib.suppress(NotSharedError):
        control = Control(path)
        control.ask(_TERMINATE)
        with contextlib.suppress(NotSharedError):
            control.answer()
        control.close()


class SharedWire:
    """A shared connection, as a wire. Commands that it does not take go over a login of their own.

    `login` makes that login; it is called at most once. Raises NotSharedError if no master listens.
    """

    def __init__(self, path: str, label: str, login: Callable[[], Wire]) -> None:
        self.label, self.path = label, path
        self.is_shared = True
        """Whether commands go over it; else they go over the login that was made instead."""
        self._has_answered = False
        self._instead = DeferredLogin(login)
        self._streams: list[SharedStream] = []
        self._closed = False
        Control(path, ANSWERS_WITHIN_S).close()

    def start(self, command: str) -> Stream:
        """Run `command` with the login shell of the box. Raises LinkLost, and as the login."""
        if self.is_shared and not self._closed and (stream := self._opened(command)):
            return stream
        if self._closed:
            raise LinkLost(self.label)
        return self._left().start(command)

    def _opened(self, command: str) -> SharedStream | None:
        """Return the command's session; None if a login was there first, or it was refused.

        A session is closed only then: a master, over which a person's ssh may go, doesn't outlive
        one that was closed before the box opened it.
        """
        stream = None
        try:
            stream = self._session(command)
            if not stream.is_opened(ANSWERS_WITHIN_S):
                self._instead.begin()
                while not stream.is_opened(_TICK_S):
                    if self._instead.is_over:
                        stream.close()
                        return None
        except NotSharedError:
            if stream is not None:
                stream.close()
            return None
        self._has_answered = True
        return stream

    def connect(self, host: str, port: int) -> Pipe:
        """Connect from the box, see `Wire.connect`: over a login of its own, which says why not."""
        return self._left().connect(host, port)

    def alive(self) -> bool:
        if not self.is_shared:
            return self._instead.alive()
        return not self._closed and is_alive(self.path)

    def close(self) -> None:
        """Close every command on it. The shared connection stays."""
        self._closed = True
        for stream in list(self._streams):
            stream.close()
        self._instead.close()

    def lost(self) -> LinkLost:
        return LinkLost(self.label, "the link was lost: the shared connection ended")

    def ended(self, stream: SharedStream) -> None:
        """Forget a command that was closed."""
        with contextlib.suppress(ValueError):
            self._streams.remove(stream)

    def _left(self) -> Wire:
        self.is_shared = False
        return self._instead.wire(has_answered=self._has_answered)

    def _session(self, command: str) -> SharedStream:
        stream = SharedStream(Control(self.path, ANSWERS_WITHIN_S), self, command)
        self._streams.append(stream)
        if self._closed:
            stream.close()
        return stream


class SharedStream:
    """One command on a box; the master reads and writes the other ends of its sockets."""

    def __init__(self, control: Control, wire: SharedWire, command: str) -> None:
        self._control, self._wire = control, wire
        self._closed = False
        pairs = [socket.socketpair() for _ in range(3)]
        self._in, self._out, self._err = (ours for ours, _ in pairs)
        theirs = [each for _, each in pairs]
        try:
            # No terminal, no X11, no agent, no subsystem; no environment.
            words = ("", 0, 0, 0, 0, _NO_ESCAPE, "", command)
            control.ask(_NEW_SESSION, *words, fds=[each.fileno() for each in theirs])
        except NotSharedError:
            self.close()
            raise
        finally:
            for each in theirs:
                each.close()
        self._errors = ErrorTail(self._err.recv, OSError)

    def is_opened(self, timeout: float) -> bool:
        """Wait at most that long for the box to open the session. Raises NotSharedError."""
        if not self._control.has_answer(timeout):
            return False
        kind, _ = self._control.answer()
        if kind != _OPENED:
            raise NotSharedError("the box refused another session")
        return True

    def read(self, n: int) -> bytes:
        try:
            data = self._out.recv(n)
        except OSError:
            data = b""
        if not data and not self._closed and not self._wire.alive():
            raise self._wire.lost()
        return data

    def read_err(self) -> bytes:
        if not self._errors.is_alive():
            self._errors.join()
        return self._errors.last()

    def write(self, b: bytes) -> None:
        rest = memoryview(b)
        try:
            while rest:
                rest = rest[self._in.send(rest[:PIECE]) :]
        except OSError:
            if not self._wire.alive():
                raise self._wire.lost() from None
            raise BrokenPipeError("the command on the box no longer reads") from None

    def close_write(self) -> None:
        with contextlib.suppress(OSError):
            self._in.shutdown(socket.SHUT_WR)

    def exit_status(self) -> int | None:
        try:
            while True:
                kind, body = self._control.answer(None)
                if kind == _EXIT:
                    return int(struct.unpack(">I", body[:4])[0])
        except NotSharedError:
            if self._closed or self._wire.alive():
                return None
        raise self._wire.lost()

    def close(self) -> None:
        self._closed = True
        self._control.close()
        for each in (self._in, self._out, self._err):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._wire.ended(self)
