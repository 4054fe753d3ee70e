"""The connection below a login, started before the heavy libraries are imported.

`dial` starts a thread that connects (or starts the proxy command) and waits for the box's SSH
greeting, so that network round trips and Python's imports overlap. It sends nothing. This module
imports no library: `transport.py`, which paramiko needs, is loaded meanwhile.
"""

import errno
import itertools
import os
import selectors
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from typing import IO

from bootstrap.errors import UnreachableError
from bootstrap.link import wire as link_errors
from bootstrap.link.endpoint import Endpoint
from bootstrap.sanitize import sanitize

_STAGGER = 0.25
"""Seconds before a name's next address is tried in parallel with the first (RFC 8305)."""
_GREETING_TIMEOUT = 15.0
_PROXY_TIMEOUT = 120.0
"""A jump host may ask for a passphrase or a touch before anything comes through."""
_QUICKACK: int = getattr(socket, "TCP_QUICKACK", 0)
_LOGIN_READS = 100
_Address = tuple[socket.AddressFamily, tuple[object, ...]]
_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


class HeardSocket(socket.socket):
    """A socket that notes when it last received anything: any byte is a sign of life."""

    heard: float = 0.0
    quickack_reads: int = 0
    """How many more reads are acknowledged immediately: a server with Nagle's algorithm waits for
    the ACK before its next small packet, which would cost the login 40 ms."""

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        if self.quickack_reads:
            self.quickack_reads -= 1
            self.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        data = super().recv(bufsize, flags)
        if data:
            self.heard = time.monotonic()
        return data


class PendingConnection:
    """A connection that is being made. `socket()` waits for it."""

    def __init__(self, endpoint: Endpoint, met: Callable[[], float] = float) -> None:
        self.endpoint = endpoint
        self._met = met
        self._socket: HeardSocket | None = None
        self._error: UnreachableError | None = None
        self._proxy: _Proxy | None = None
        self._given_up = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="dial", daemon=True)
        self._thread.start()

    def socket(self) -> HeardSocket:
        """Return the connected socket, once an SSH server greeted. Raises UnreachableError."""
        patience = _PROXY_TIMEOUT if self.endpoint.proxy_command else _GREETING_TIMEOUT
        self._thread.join(self.endpoint.connect_timeout + patience)
        if self._error:
            raise self._error
        if self._socket is None or self._thread.is_alive():
            self.close()
            raise link_errors.timed_out(self.endpoint, self._met())
        return self._socket

    def close(self) -> None:
        with self._lock:
            self._given_up = True
            if self._socket:
                self._socket.close()
        if self._proxy:
            self._proxy.close()

    def proxy_errors(self) -> str:
        return self._proxy.errors() if self._proxy else ""

    def _run(self) -> None:
        try:
            if self.endpoint.proxy_command:
                self._proxy = _Proxy(self.endpoint.proxy_command)
                connected = self._proxy.socket
            else:
                connected = _connect(self.endpoint)
            with self._lock:
                self._socket = connected
            _await_greeting(connected, self.endpoint, self._proxy, self._met)
        except UnreachableError as error:
            self._error = error
        except UnicodeError:  # not a valid host name: `a..b`, a label of 64 letters
            self._error = link_errors.not_found(self.endpoint)
        except OSError as error:
            self._error = link_errors.unreachable(self.endpoint, error, self._met())
        if self._error or self._given_up:
            self.close()


def dial(endpoint: Endpoint, met: Callable[[], float] = float) -> PendingConnection:
    """Start to connect; returns immediately. `met`: when the box was spoken to last, or 0."""
    return PendingConnection(endpoint, met)


class _Proxy:
    """A proxy command with one socket as its input and output, as `ssh` runs it."""

    def __init__(self, command: str) -> None:
        ours, theirs = socket.socketpair()
        self._said = ""
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this
        shell = os.environ.get("SHELL") or "/bin/sh"
        with theirs:
            self._process = subprocess.Popen(
                [shell, "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._stderr,
            )
        self.socket = HeardSocket(fileno=ours.detach())

    def errors(self) -> str:
        """Return the end of the command's errors (2 KiB), safe to print."""
        if not self._stderr.closed:
            size = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, size - 2048))
            self._said = sanitize(self._stderr.read()).strip()
        return self._said

    def close(self) -> None:
        """End the command: SIGTERM, and SIGKILL after a second."""
        self.socket.close()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(1)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self.errors()
        self._stderr.close()


def _connect(endpoint: Endpoint) -> HeardSocket:
    """Connect to the first address of the name that answers."""
    family = _FAMILIES.get(endpoint.address_family, socket.AF_UNSPEC)
    name = endpoint.hostname
    # Given text, Python would import its codec for international names; bytes avoid that.
    host = name.encode() if name.isascii() else name
    found = socket.getaddrinfo(host, endpoint.port, family, socket.SOCK_STREAM)
    waiting = _alternate([(item[0], item[4]) for item in found])
    deadline = time.monotonic() + endpoint.connect_timeout
    trying: list[socket.socket] = []
    last: OSError = TimeoutError()
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or trying:
                if waiting:
                    try:
                        trying.append(_begin(*waiting.pop(0), selector))
                    except OSError as error:
                        last = error
                        continue
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                for key, _ in selector.select(min(left, _STAGGER) if waiting else left):
                    connecting: socket.socket = key.data
                    selector.unregister(connecting)
                    trying.remove(connecting)
                    code = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if code == 0:
                        connecting.setblocking(True)
                        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        ready = HeardSocket(fileno=connecting.detach())
                        ready.quickack_reads = _LOGIN_READS if _QUICKACK else 0
                        return ready
                    connecting.close()
                    last = OSError(code, os.strerror(code))
        finally:
            for other in trying:
                other.close()
    raise last


def _alternate(addresses: list[_Address]) -> list[_Address]:
    """Alternate IPv6 and IPv4 addresses, otherwise in the resolver's order."""
    first = [item for item in addresses if item[0] == addresses[0][0]]
    others = [item for item in addresses if item[0] != addresses[0][0]]
    pairs = itertools.zip_longest(first, others)
    return [item for pair in pairs for item in pair if item]


def _begin(
    family: socket.AddressFamily, address: tuple[object, ...], selector: selectors.BaseSelector
) -> socket.socket:
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        code = connecting.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
        selector.register(connecting, selectors.EVENT_WRITE, connecting)
    except OSError:
        connecting.close()
        raise
    return connecting


def _await_greeting(
    connected: HeardSocket, endpoint: Endpoint, proxy: _Proxy | None, met: Callable[[], float]
) -> None:
    """Wait until a whole line that starts with `SSH-` has arrived; it stays unread."""
    patience = _PROXY_TIMEOUT if proxy else _GREETING_TIMEOUT
    deadline = time.monotonic() + patience
    said = b""
    while True:
        connected.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            seen = connected.recv(4096, socket.MSG_PEEK)
        except TimeoutError:
            if said:
                raise link_errors.not_ssh(endpoint, said) from None
            raise link_errors.silence_error(endpoint, patience) from None
        except ConnectionResetError:
            seen = b""
        if not seen and said:
            raise link_errors.not_ssh(endpoint, said)
        if not seen:
            if proxy:
                time.sleep(0.05)  # the command's last errors come after the end of its output
            raise link_errors.closed_early(endpoint, proxy.errors() if proxy else None, met())
        # Only complete lines count: paramiko would read an unterminated one forever.
        *lines, _ = seen.split(b"\n")
        if any(line.startswith(b"SSH-") for line in lines):
            connected.settimeout(None)
            return
        too_much = len(said) + len(seen) >= 4096
        # Servers may print lines before their greeting (RFC 4253, 4.2), so only HTTP is ruled out.
        if too_much or seen.startswith(b"HTTP/") or time.monotonic() > deadline:
            raise link_errors.not_ssh(endpoint, said + seen)
        if lines:  # taken, so that an end after them shows
            said += connected.recv(sum(len(line) + 1 for line in lines))
        time.sleep(0.02)
