"""`--host local`: a wire to this machine itself, without SSH."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import threading

from bootstrap.link.wire import PIECE, ErrorTail, LinkLost

_CONNECT_S = 30


class LocalWire:
    """Runs commands on this machine, as a login would run them on a box."""

    def __init__(self, shell: str = "/bin/sh") -> None:
        self.label = "this machine"
        self._shell = shell
        self._streams: list[LocalStream] = []
        self._open = True

    def start(self, command: str) -> LocalStream:
        """Run `command` with the shell, in a session of its own. Raises LinkLost once closed."""
        stream = LocalStream(self._shell, command)
        self._streams.append(stream)
        if not self._open:
            stream.close()
            raise LinkLost(self.label)
        return stream

    def connect(self, host: str, port: int) -> LocalPipe:
        try:
            return LocalPipe(socket.create_connection((host, port), timeout=_CONNECT_S))
        except TimeoutError as error:
            raise ConnectionRefusedError(str(error)) from None

    def alive(self) -> bool:
        """Whether `close` has not been called yet."""
        return self._open

    def close(self) -> None:
        """End all commands that are still running and didn't detach themselves."""
        self._open = False
        for stream in self._streams:
            stream.close()


class LocalPipe:
    """A connection to a port of this machine, or to one that it can reach."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(None)
        self._socket = sock
        self.recv, self.sendall = sock.recv, sock.sendall

    def shutdown_write(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class LocalStream:
    def __init__(self, shell: str, command: str) -> None:
        self._process = subprocess.Popen(
            [shell, "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            cwd=os.path.expanduser("~"),  # noqa: PTH111 - where a login starts
            bufsize=0,
        )
        self._closed = False
        self._reading = threading.Lock()
        self._wake, self._waker = socket.socketpair()
        self._errors = ErrorTail(self._read_errors)

    def read(self, n: int) -> bytes:
        """Read up to `n` bytes of output; `b""` at the end, or after `close`."""
        with self._reading:
            output = self._process.stdout
            if self._closed or output is None:
                return b""
            with selectors.DefaultSelector() as selector:
                selector.register(output, selectors.EVENT_READ)
                selector.register(self._wake, selectors.EVENT_READ)
                if any(key.fileobj is self._wake for key, _ in selector.select()):
                    return b""
            return output.read(n) or b""

    def read_err(self) -> bytes:
        if self._process.poll() is not None:
            self._errors.join(0.2)
        return self._errors.last()

    def _read_errors(self, n: int) -> bytes:
        pipe = self._process.stderr
        piece = pipe.read(n) if pipe else b""
        if pipe and not piece:
            pipe.close()
        return piece

    def write(self, b: bytes) -> None:
        rest = memoryview(b)
        while rest:
            if self._process.stdin is None or self._process.stdin.closed:
                raise BrokenPipeError("the command no longer reads")
            sent = self._process.stdin.write(rest[:PIECE])
            rest = rest[sent:]

    def close_write(self) -> None:
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def exit_status(self) -> int | None:
        """Wait for the exit code; None if a signal ended the command."""
        code = self._process.wait()
        return code if code >= 0 else None

    def close(self) -> None:
        """End the command with SIGHUP, as a closed login does; detached processes continue."""
        if self._closed:
            return
        self._closed = True
        self._waker.close()
        self.close_write()
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGHUP)
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        with self._reading:
            self._wake.close()
            if self._process.stdout:
                self._process.stdout.close()
