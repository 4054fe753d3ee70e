"""The link to a box: its interface to the rest of boxstrap, and its errors.

Code above this module doesn't know whether a `Wire` is one over SSH or to this machine itself.

UnreachableError       can't reach the box or log in
├── LinkLost           the link died; what runs on the box continues
├── LoginRefused       the box answers, but accepts none of our keys
├── LoginBroken        the box answers, but the login broke off half-way
│   └── NotNow         its SSH server takes no more logins for the moment
└── NoAnswer           the box printed something other than an answer
"""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from bootstrap.errors import UnreachableError
from bootstrap.sanitize import sanitize
from bootstrap.sizes import duration

if TYPE_CHECKING:
    from bootstrap.link.endpoint import Endpoint

_ERRORS_KEPT = 64 * 1024
PIECE = 64 * 1024  # bytes written at a time: one huge write can hang for minutes (docs/adr/0004)


class Stream(Protocol):
    """One command on the box.

    Its errors are collected in parallel with its output, so that a command that
    prints much of both never blocks; the last 64 KiB of them are kept.
    """

    def read(self, n: int) -> bytes:
        """Read up to `n` bytes of output, as soon as there are any; `b""` at the end. Raises
        LinkLost if the link died before the output's end."""

    def read_err(self) -> bytes:
        """Return the last 64 KiB of errors so far; complete once `read` returned `b""`."""

    def write(self, b: bytes) -> None:
        """Send all of `b` to the command's input. Raises LinkLost if the link died, BrokenPipeError
        if the command no longer reads."""

    def close_write(self) -> None:
        """End the command's input."""

    def exit_status(self) -> int | None:
        """Wait for the command's exit code; None if it ended without one. Call it after the
        output's end. Raises LinkLost."""

    def close(self) -> None:
        """Close the stream. A command that detached itself continues."""


class ErrorTail(threading.Thread):
    """Reads a command's errors as they come, since unread ones would block it or its output, and
    keeps the last of them. `read` gives the next ones, `ends` is what it raises at a lost link."""

    def __init__(self, read: Callable[[int], bytes], *ends: type[Exception]) -> None:
        super().__init__(name="stderr", daemon=True)
        self._read, self._ends = read, ends
        self._pieces: deque[bytes] = deque()
        self.start()

    def run(self) -> None:
        kept = 0
        with contextlib.suppress(*self._ends):
            while piece := self._read(PIECE):
                self._pieces.append(piece)
                kept += len(piece)
                while kept - len(self._pieces[0]) >= _ERRORS_KEPT:
                    kept -= len(self._pieces.popleft())

    def last(self) -> bytes:
        return b"".join(self._pieces)[-_ERRORS_KEPT:]


def read_exactly(sock: socket.socket, wanted: int) -> bytes:
    """Return so many bytes. Raises OSError, also if there is an end before."""
    data = b""
    while len(data) < wanted:
        piece = sock.recv(wanted - len(data))
        if not piece:
            raise ConnectionError("it closed the connection")
        data += piece
    return data


class Pipe(Protocol):
    """A connection made by the box, to one of its ports or to one that it can reach."""

    def recv(self, n: int, /) -> bytes:
        """Read up to `n` bytes, as soon as there are any; `b""` at the end. Raises OSError."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of `data`. Raises OSError."""

    def shutdown_write(self) -> None:
        """Close the sending side. Raises OSError, EOFError."""

    def close(self) -> None:
        """Close both directions, and wake up a blocked reader."""


class Wire(Protocol):
    """A link to a box, logged in."""

    label: str  # the box's name in messages: `user@address:port`

    def start(self, command: str) -> Stream:
        """Run `command` with the login shell of the box. Raises LinkLost."""

    def connect(self, host: str, port: int) -> Pipe:
        """Connect from the box to `port` of `host`. Raises ConnectionRefusedError if nothing
        answers there, PermissionError if the box doesn't allow forwarding, LinkLost."""

    def alive(self) -> bool:
        """Whether the link is still up."""

    def close(self) -> None:
        """Close the link and every stream on it."""


_STARTING = "A box that was just rented may still be starting: try again in a minute."
_KNOWN = "You were last on this box {ago} ago: it may be off, restarting, or given back."
_ADDRESS = "Compare address and port with the provider's page; ports change when a box restarts."


class LinkLost(UnreachableError):  # noqa: N818 - a name of the contract
    """The link to the box died. Following again is safe: the box continues."""

    def __init__(self, label: str, why: str = "the link was lost") -> None:
        super().__init__(
            why,
            where=label,
            hint="If the box is up, what runs there continues: follow it by the same command.",
        )


class LoginRefused(UnreachableError):  # noqa: N818 - likewise
    """The box answers, but accepts none of our keys."""


class LoginBroken(UnreachableError):  # noqa: N818 - likewise
    """The box answers, but the login broke off half-way: on a bad link a retry may succeed."""


class NotNow(LoginBroken):
    """The box's SSH server takes no more logins for the moment: it has too many, or punishes."""


class NoAnswer(UnreachableError):  # noqa: N818 - likewise
    """The box was reached, but its output is not the expected answer."""


def _starting(seen: float) -> str:
    """Return a hint why a box doesn't answer. `seen`: when it last did, 0 for never."""
    return _KNOWN.format(ago=duration(time.time() - seen)) if seen else _STARTING


def silence_error(endpoint: Endpoint, seconds: float) -> UnreachableError:
    """Return the error for a connection without an SSH greeting."""
    return LoginBroken(
        f"it accepted the connection but said nothing for {seconds:g} s: "
        "that is not an SSH server, or one that hangs.",
        where=endpoint.address,
        hint=_ADDRESS,
    )


def closed_early(endpoint: Endpoint, proxy_said: str | None, seen: float = 0.0) -> UnreachableError:
    """Return the error for an end before the greeting; `proxy_said`: errors of a proxy command."""
    if proxy_said is not None:
        return UnreachableError(
            f"the connection through the proxy failed: "
            f"{proxy_said or 'the proxy command printed no error.'}",
            where=endpoint.address,
            hint=f"Try it with OpenSSH: ssh {endpoint.alias}",
        )
    return LoginBroken(
        "it closed the connection before any login.",
        where=endpoint.address,
        hint=f"{_starting(seen)} Too many logins at once, or a provider's proxy that doesn't know "
        "this box, look the same.",
    )


_NOT_NOW = {
    "Exceeded MaxStartups": (
        "its SSH server has too many logins at a time (MaxStartups).",
        "Try again in a moment, with fewer commands at a time.",
    ),
    "Not allowed at this time": (
        "its SSH server lets nobody in from this machine's address for a while, after logins that "
        "failed or broke off (PerSourcePenalties).",
        "It ends by itself, mostly within a minute, at the latest after ten: try again then.",
    ),
}
"""What OpenSSH's server says in place of its greeting, and what that means."""


def not_ssh(endpoint: Endpoint, seen: bytes) -> UnreachableError:
    """Return the error for a greeting that is not SSH's, or one that OpenSSH refuses with."""
    said = sanitize(seen[:80]).strip().splitlines()
    if said and said[0] in _NOT_NOW:
        what, hint = _NOT_NOW[said[0]]
        return NotNow(what, where=endpoint.address, hint=hint)
    return UnreachableError(
        f"what answers there is not an SSH server; it said: {said[0] if said else '(unprintable)'}",
        where=endpoint.address,
        hint=_ADDRESS,
    )


def timed_out(endpoint: Endpoint, seen: float = 0.0) -> UnreachableError:
    return UnreachableError(
        f"no answer within {endpoint.connect_timeout:.0f} s.",
        where=endpoint.address,
        hint=f"{_starting(seen)} A firewall looks the same. {_ADDRESS}",
    )


def not_found(endpoint: Endpoint) -> UnreachableError:
    """Return the error for a name that the resolver doesn't find, with the known box that has
    nearly that name, or had it, or that a box that was forgotten here had it."""
    import difflib  # here, as most starts need none of these

    from bootstrap.link.forgotten import is_forgotten
    from bootstrap.link.record import all_boxes

    if is_forgotten(name := endpoint.hostname):
        return UnreachableError(
            "the box of this name was forgotten here.",
            where=name,
            hint=f'With its address it is known again: boxstrap setup --host "ssh …" --name {name}'
            "\nIts runs that came home: boxstrap runs --all",
        )
    boxes = all_boxes()
    names = {former: box.name for box in boxes for former in box.former}
    names.update((box.name, box.name) for box in boxes)
    near = difflib.get_close_matches(name, names, 1, 0.7)
    is_known = name in names or "." in name  # as the name of a box is rarely an address
    return UnreachableError(
        "the name was not found.",
        where=name,
        hint=(f"Did you mean {names[near[0]]}? " if near else "")
        + ("" if is_known else "No box is known here by this name (see boxstrap boxes). ")
        + "Check the spelling, your network, and that the alias is in your ssh config.",
    )


def unreachable(endpoint: Endpoint, error: OSError, seen: float = 0.0) -> UnreachableError:
    """Return the error for what the system reported."""
    if isinstance(error, socket.gaierror):
        return not_found(endpoint)
    if isinstance(error, TimeoutError) or error.errno == errno.ETIMEDOUT:
        return timed_out(endpoint, seen)
    if error.errno == errno.ECONNREFUSED:
        return UnreachableError(
            "the connection was refused: nothing listens on that port.",
            where=endpoint.address,
            hint=f"{_starting(seen)} {_ADDRESS}",
        )
    if error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EADDRNOTAVAIL):
        return UnreachableError(
            "there is no route to it from here.",
            where=endpoint.address,
            hint="Check this machine's network and VPN; the box may be gone.",
        )
    return UnreachableError(
        f"the connection failed: {error.strerror or error}.", where=endpoint.address, hint=_ADDRESS
    )
