"""The interface of a link to the rest of boxstrap: a `Wire` starts commands, each is a `Stream`.

`SshWire` (link/ssh.py) and `LocalWire` (link/local.py) implement it. Code
above this module doesn't know which one it uses.
"""

from __future__ import annotations

from typing import Protocol

PIECE = 64 * 1024
"""Bytes written at a time: one huge write can hang for minutes (docs/adr/0004)."""


class Stream(Protocol):
    """One command on the box.

    Its errors are collected in parallel with its output, so that a command that
    prints much of both never blocks; the last 64 KiB of them are kept.
    """

    def read(self, n: int) -> bytes:
        """Read up to `n` bytes of output, as soon as there are any; `b""` at the end.

        Raises LinkLost if the link died before the output's end.
        """

    def read_err(self) -> bytes:
        """Return the last 64 KiB of errors so far; complete once `read` returned `b""`."""

    def write(self, b: bytes) -> None:
        """Send all of `b` to the command's input.

        Raises LinkLost if the link died, BrokenPipeError if the command no
        longer reads.
        """

    def close_write(self) -> None:
        """End the command's input."""

    def exit_status(self) -> int | None:
        """Wait for the command's exit code; None if it ended without one.

        Call it after the output's end. Raises LinkLost.
        """

    def close(self) -> None:
        """Close the stream. A command that detached itself continues."""


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

    label: str
    """The box's name in messages: `user@address:port`."""

    def start(self, command: str) -> Stream:
        """Run `command` with the login shell of the box. Raises LinkLost."""

    def connect(self, host: str, port: int) -> Pipe:
        """Connect from the box to `port` of `host`.

        Raises ConnectionRefusedError if nothing answers there, PermissionError if the box doesn't
        allow forwarding, LinkLost.
        """

    def alive(self) -> bool:
        """Whether the link is still up."""

    def close(self) -> None:
        """Close the link and every stream on it."""
