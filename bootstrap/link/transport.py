"""paramiko's transport, changed for fast and safe logins.

Private names of paramiko are used: before its range in pyproject.toml is widened, tests/unit/link
must have passed with the new version.
"""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import threading
from collections.abc import Callable, Sequence
from typing import ClassVar

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

from bootstrap.link.dial import HeardSocket
from bootstrap.link.public_key import RSA, RSA_SIGNATURES

WINDOW = 10 * 1024 * 1024
"""Bytes a box may send unread: enough for 90 MiB/s at 100 ms, but little memory (docs/adr/0004)."""
HANDSHAKE_S = 20.0  # how long the box may take to agree on keys, in seconds
_PACKET = 128 * 1024
_LONGEST_READ = 1024 * 1024  # bytes; OpenSSH's packets have at most 256 KiB (PACKET_MAX_SIZE)
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
    _accepted = False

    def send_auth_request(
        self, username: str, method: str, finish_message: Callable[[Message], None] | None = None
    ) -> list[str]:
        """Send it as paramiko does, but create the event for the answer first: an answer that came
        before that would never be noticed."""
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
