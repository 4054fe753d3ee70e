"""The connection below a login, started before the heavy libraries are imported.

`dial` starts a thread that connects (or starts the proxy command) and waits for
the box's SSH greeting, so that network round trips and Python's imports overlap.
It sends nothing. Each kind of failure has its own error: name not found, refused
port, no route, silence, not an SSH server.

paramiko's transport, changed for fast and safe logins.

Changes: a 10 MiB window; AES-GCM first, and no weak algorithms or SHA-1 signatures; fewer
renegotiations of keys; the service request is sent together with the first login attempt (saves a
round trip); the box can be asked whether it accepts a key before its passphrase is asked for; the
reason that a box gives when it hangs up is kept. The private names of paramiko that are used are
listed in tests/unit/link/test_paramiko_names.py.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import re
import selectors
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, ClassVar

import paramiko
from paramiko.auth_handler import AuthOnlyHandler
from paramiko.channel import Channel
from paramiko.common import (
    MSG_CHANNEL_DATA,
    MSG_CHANNEL_EXTENDED_DATA,
    cMSG_SERVICE_REQUEST,
    cMSG_USERAUTH_REQUEST,
)
from paramiko.message import Message
from paramiko.packet import Packetizer
from paramiko.transport import ServiceRequestingTransport

from bootstrap.errors import UnreachableError
from bootstrap.link import errors as link_errors
from bootstrap.link.resolve import Endpoint
from bootstrap.public_key import RSA, RSA_SIGNATURES
from bootstrap.text.sanitize import sanitize

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
        """As socket.recv."""
        if self.quickack_reads:
            self.quickack_reads -= 1
            self.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        data = super().recv(bufsize, flags)
        if data:
            self.heard = time.monotonic()
        return data


class PendingConnection:
    """A connection that is being made. `socket()` waits for it."""

    def __init__(self, endpoint: Endpoint, seen: float = 0.0) -> None:
        self.endpoint = endpoint
        self._seen = seen
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
            raise link_errors.timed_out(self.endpoint, self._seen)
        return self._socket

    def close(self) -> None:
        """Close the connection and end the proxy command."""
        with self._lock:
            self._given_up = True
            if self._socket:
                self._socket.close()
        if self._proxy:
            self._proxy.close()

    def proxy_errors(self) -> str:
        """Return the errors of the proxy command, if there is one."""
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
            _await_greeting(connected, self.endpoint, self._proxy, self._seen)
        except UnreachableError as error:
            self._error = error
        except UnicodeError:  # not a valid host name: `a..b`, a label of 64 letters
            self._error = link_errors.not_found(self.endpoint)
        except OSError as error:
            self._error = link_errors.unreachable(self.endpoint, error, self._seen)
        if self._error or self._given_up:
            self.close()


def dial(endpoint: Endpoint, seen: float = 0.0) -> PendingConnection:
    """Start to connect; returns immediately. `seen`: time of the last login to the box, or 0."""
    return PendingConnection(endpoint, seen)


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
                        return _ready(connecting)
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


def _ready(connected: socket.socket) -> HeardSocket:
    connected.setblocking(True)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ready = HeardSocket(fileno=connected.detach())
    ready.quickack_reads = _LOGIN_READS if _QUICKACK else 0
    return ready


def _await_greeting(
    connected: HeardSocket, endpoint: Endpoint, proxy: _Proxy | None, last: float
) -> None:
    """Wait until a whole line that starts with `SSH-` has arrived; it stays unread."""
    patience = _PROXY_TIMEOUT if proxy else _GREETING_TIMEOUT
    deadline = time.monotonic() + patience
    while True:
        connected.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            seen = connected.recv(4096, socket.MSG_PEEK)
        except TimeoutError:
            raise link_errors.silence_error(endpoint, patience) from None
        except ConnectionResetError:
            seen = b""
        if not seen:
            if proxy:
                time.sleep(0.05)  # the command's last errors come after the end of its output
            raise link_errors.closed_early(endpoint, proxy.errors() if proxy else None, last)
        # Only complete lines count: paramiko would read an unterminated one forever.
        if any(line.startswith(b"SSH-") for line in seen.split(b"\n")[:-1]):
            connected.settimeout(None)
            return
        if len(seen) >= 4096 or not _could_become_ssh(seen) or time.monotonic() > deadline:
            raise link_errors.not_ssh(endpoint, seen)
        time.sleep(0.02)


def _could_become_ssh(seen: bytes) -> bool:
    """Servers may print lines before their greeting (RFC 4253, 4.2), so only HTTP is ruled out."""
    return not seen.startswith(b"HTTP/")


WINDOW = 10 * 1024 * 1024
"""Bytes a box may send unread: enough for 90 MiB/s at 100 ms, but little memory (docs/adr/0004)."""
HANDSHAKE_S = 15.0
"""How long the box may take to agree on keys, in seconds."""
_PACKET = 128 * 1024
_LONGEST_READ = 1024 * 1024
"""Bytes; OpenSSH's packets have at most 256 KiB (PACKET_MAX_SIZE)."""
_CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr")
_WEAK = re.compile("cbc|sha1|md5|ssh-rsa|ssh-dss")
"""Never offered: a server that has nothing better, or someone in between, could pick it."""

# boxstrap reports the errors that paramiko logs in its own words, once.
logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)


class _Packetizer(Packetizer):
    """Renegotiates keys after 32 GiB; OpenSSH does so after 64 GiB (2^32 AES blocks)."""

    REKEY_BYTES = 1 << 35
    REKEY_PACKETS = 1 << 31

    def read_all(self, n: int, check_rekey: bool = False) -> bytes:
        """Read as paramiko does, with a limit: paramiko accepts any packet length up to 4 GiB."""
        if n > _LONGEST_READ:
            raise paramiko.SSHException("it sent a packet of an impossible length")
        data: bytes = super().read_all(n, check_rekey)
        return data


def _within_window(feed: Callable[[Channel, Message], None]) -> Callable[[Channel, Message], None]:
    """Wrap `feed` to check that the box keeps to the channel's window; paramiko doesn't check."""

    def take(channel: Channel, message: Message) -> None:
        unread = len(channel.in_buffer) + len(channel.in_stderr_buffer)
        if unread > 2 * channel.in_window_size:
            raise paramiko.SSHException("it sent more than it was allowed to")
        feed(channel, message)

    return take


class BoxTransport(ServiceRequestingTransport):
    """A transport to a box."""

    auth_handler: KeyAuth | None
    _channel_handler_table: ClassVar[dict[int, Callable[[Channel, Message], None]]] = {
        **ServiceRequestingTransport._channel_handler_table,  # type: ignore[attr-defined]
        MSG_CHANNEL_DATA: _within_window(Channel._feed),  # type: ignore[attr-defined]
        MSG_CHANNEL_EXTENDED_DATA: _within_window(Channel._feed_extended),  # type: ignore[attr-defined]
    }

    def __init__(self, sock: HeardSocket, kinds: Sequence[str] = (), **_: object) -> None:
        super().__init__(
            sock,
            default_window_size=WINDOW,
            default_max_packet_size=_PACKET,
            packetizer_class=_Packetizer,
            # Before paramiko 5, an RSA key signs with SHA-1 if the login starts before the box's
            # list of signature algorithms has arrived.
            disabled_algorithms={"pubkeys": [RSA]},
        )
        self.heard_socket = sock
        self.disconnect_reason = ""
        self.handshake_timeout = HANDSHAKE_S
        options = self.get_security_options()
        for kind in ("ciphers", "digests", "kex", "key_types"):
            setattr(options, kind, [n for n in getattr(options, kind) if not _WEAK.search(n)])
        preferred = [name for name in _CIPHERS if name in options.ciphers]
        options.ciphers = [*preferred, *(c for c in options.ciphers if c not in preferred)]
        wanted = [name for kind in kinds for name in (RSA_SIGNATURES if kind == RSA else [kind])]
        first = [name for name in wanted if name in options.key_types]
        options.key_types = [*first, *(k for k in options.key_types if k not in first)]

    def ensure_session(self) -> None:
        """Request the login service without waiting: its answer comes before the login's."""
        if not self.is_active():
            raise paramiko.SSHException("the transport is closed")
        if self.auth_handler is None:
            request = Message()
            request.add_byte(cMSG_SERVICE_REQUEST)
            request.add_string("ssh-userauth")
            self._send_message(request)  # type: ignore[attr-defined]
            self.auth_handler = KeyAuth(self)

    def would_accept(self, username: str, kind: str, blob: bytes) -> bool:
        """Whether the box would accept this public key; nothing is signed."""
        self.ensure_session()
        assert self.auth_handler is not None  # noqa: S101 - what ensure_session is for
        return self.auth_handler.would_accept(username, kind, blob)

    def get_exception(self) -> Exception | None:
        """Return paramiko's exception; one raised by a malformed message becomes SSHException."""
        error: Exception | None = super().get_exception()
        if error is None or isinstance(error, paramiko.SSHException | EOFError | OSError):
            return error
        return paramiko.SSHException(f"it sent a malformed message ({type(error).__name__})")

    def close(self) -> None:
        """Close immediately: a reader that is blocked in `recv` is woken up."""
        with contextlib.suppress(OSError):
            self.heard_socket.shutdown(socket.SHUT_RDWR)
        super().close()

    def _parse_disconnect(self, m: Message) -> None:
        m.get_int()
        self.disconnect_reason = m.get_binary()[:500].decode("utf-8", "replace")


class KeyAuth(AuthOnlyHandler):
    """Login with keys."""

    _accepted = False

    def send_auth_request(
        self,
        username: str,
        method: str,
        finish_message: Callable[[Message], None] | None = None,
    ) -> list[str]:
        """Send the request as paramiko does, but create the event for the answer first.

        paramiko creates it after sending, so an answer that comes very fast is
        never noticed.
        """
        self.auth_method = method
        self.username = username
        message = Message()
        message.add_byte(cMSG_USERAUTH_REQUEST)
        message.add_string(username)
        message.add_string("ssh-connection")
        message.add_string(method)
        if finish_message:
            finish_message(message)
        answered = self.auth_event = threading.Event()
        with self.transport.lock:
            self.transport._send_message(message)  # type: ignore[attr-defined]
        return self.wait_for_response(answered)

    def would_accept(self, username: str, kind: str, blob: bytes) -> bool:
        """Whether the box would accept this public key. Raises as a login does."""
        self._accepted = False
        algorithm = self._finalize_pubkey_algorithm(kind)  # type: ignore[attr-defined]

        def finish(message: Message) -> None:
            message.add_boolean(False)
            message.add_string(algorithm)
            message.add_string(blob)

        try:
            self.send_auth_request(username, "publickey", finish)
        except paramiko.BadAuthenticationType:
            raise
        except paramiko.AuthenticationException:
            if not self._accepted and not self.transport.is_active():
                raise
        return self._accepted

    def _parse_userauth_info_request(self, m: Message) -> None:  # noqa: ARG002 - paramiko's
        """Handle message 60: after a query for a key it is SSH_MSG_USERAUTH_PK_OK (RFC 4252, 7)."""
        self._accepted = True
        if self.auth_event:
            self.auth_event.set()
