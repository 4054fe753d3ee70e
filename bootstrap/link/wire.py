"""What the rest of boxstrap knows of a link: a `Wire` starts commands, each is a `Stream`.

`SshWire` (link/ssh.py) and `LocalWire` (link/local.py) are the two kinds.
Nothing here or above it knows which one it holds.
"""

from __future__ import annotations

from typing import Protocol

PIECE = 64 * 1024
"""Bytes written at a time: one huge write can hang for minutes (docs/adr/0004)."""


class Stream(Protocol):
    """One command on the box.

    Errors of the command are collected beside its output, so that a command
    that prints much of both never stalls; the last 64 KiB of them are kept.
    """

    def read(self, n: int) -> bytes:
        """Up to `n` bytes of output, as soon as there are any; `b""` at the end.

        Raises LinkLost when the link died before the output's end.
        """

    def read_err(self) -> bytes:
        """The last 64 KiB of the command's errors so far; complete once `read` gave `b""`."""

    def write(self, b: bytes) -> None:
        """Send all of `b` to the command's input.

        Raises LinkLost when the link died, BrokenPipeError when the command
        no longer reads.
        """

    def close_write(self) -> None:
        """End the command's input."""

    def exit_status(self) -> int | None:
        """Wait for the command's exit code; None when it ended without one.

        Call it after the output's end. Raises LinkLost.
        """

    def close(self) -> None:
        """Let go of the command. One that detached itself goes on."""


class Pipe(Protocol):
    """A connection that the box made to one of its ports, or to one that it can reach."""

    def recv(self, n: int, /) -> bytes:
        """Up to `n` bytes, as soon as there are any; `b""` at the end. Raises OSError."""

    def sendall(self, data: bytes, /) -> None:
        """Send all of it. Raises OSError."""

    def shutdown_write(self) -> None:
        """Nothing more is sent. Raises OSError, EOFError."""

    def close(self) -> None:
        """End it in both directions, and wake who reads."""


class Wire(Protocol):
    """A link to a box, logged in."""

    label: str
    """How messages call the box: `user@address:port`."""

    def start(self, command: str) -> Stream:
        """Run `command` with the login shell of the box. Raises LinkLost."""

    def connect(self, host: str, port: int) -> Pipe:
        """A connection from the box to `port` of `host`.

        Raises ConnectionRefusedError where nothing answers there, PermissionError where the box
        lets no connection through, LinkLost.
        """

    def alive(self) -> bool:
        """Whether the link still stands."""

    def close(self) -> None:
        """Close the link and every stream on it."""
