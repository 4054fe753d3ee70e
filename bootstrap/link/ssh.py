"""A login over SSH, based on Fabric and paramiko, and commands on it.

Fabric alone trusts every host key, ignores `Include` and buffers output (docs/adr/0004). Here its
connection gets the socket that was dialled, the box's host keys and boxstrap's choice of keys, and
output is read directly from the channel.

A dead link is noticed within 12 s. After 4 s of silence the box is asked for an answer (a refusal
is one too); after 12 s without a single byte the transport is closed. Asking blocks if a full send
buffer never drains, so it has its own thread. Any byte counts, or slow uploads would look dead.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from functools import partial

import paramiko
from fabric import Config, Connection
from paramiko.config import SSHConfig

from bootstrap.errors import UnreachableError
from bootstrap.link.cancel import within
from bootstrap.link.dial import PendingConnection
from bootstrap.link.hostkeys import FirstContact, HostKeyCheck
from bootstrap.link.keys import KeyLogin
from bootstrap.link.prompt import Prompt
from bootstrap.link.public_key import PublicKey
from bootstrap.link.reconnecting import DeferredLogin
from bootstrap.link.record import KnownBox
from bootstrap.link.transport import BoxTransport
from bootstrap.link.wire import PIECE, ErrorTail, LinkLost, LoginBroken, Pipe, Stream, Wire
from bootstrap.sanitize import sanitize

ASK_AFTER = 4.0
DEAD_AFTER = 12.0
_TICK = 0.5


class Heartbeat:
    """Watches one transport until it closes."""

    def __init__(
        self, transport: BoxTransport, ask_after: float = ASK_AFTER, dead_after: float = DEAD_AFTER
    ) -> None:
        self._transport = transport
        self._ask_after = ask_after
        # Less than `dead_after`, so that even with late ticks it is noticed in time.
        self._dead_after = dead_after - 2 * _TICK
        self._stopped = threading.Event()
        self.died = False
        transport.heard_socket.heard = time.monotonic()
        threading.Thread(target=self._watch, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        asking: threading.Thread | None = None
        asked = tick = time.monotonic()
        while not self._stopped.wait(_TICK) and self._transport.is_active():
            now = time.monotonic()
            if now - tick > 4 * _TICK:
                # This program was stopped (Ctrl-Z, a frozen machine), so the silence says nothing
                # about the box. It is asked once more, and gets time to answer.
                heard = self._transport.heard_socket.heard
                self._transport.heard_socket.heard = max(heard, now - self._ask_after)
            tick = now
            silence = now - self._transport.heard_socket.heard
            if silence >= self._dead_after:
                self.died = True
                self._transport.close()
                return
            free = asking is None or not asking.is_alive()
            if silence >= self._ask_after and now - asked >= self._ask_after / 2 and free:
                asked = now
                asking = threading.Thread(target=self._ask, name="heartbeat-ask", daemon=True)
                asking.start()

    def _ask(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._transport.global_request("keepalive@openssh.com", wait=True)


_BANNER_TIMEOUT = 15
_AUTH_TIMEOUT = 30
_START_TIMEOUT = 60
"""Seconds that a box may take to start a command; paramiko would wait an hour, or forever."""
_GULP = 4 * 1024 * 1024
"""Bytes taken from the channel at once: each read also copies what stays in its buffer."""
_FORBIDDEN = 1  # SSH_OPEN_ADMINISTRATIVELY_PROHIBITED (RFC 4254, 5.1)
_PIPE_WINDOW = 2 * 1024 * 1024
"""Bytes a box may send unread on each connection of a tunnel: a web page opens many."""


def login(  # noqa: PLR0913 - each has its own name where it is called
    dialing: PendingConnection,
    known: KnownBox,
    *,
    host_key: str | None = None,
    first_contact: FirstContact = "pin",
    say: Callable[[str], None],
    again: Callable[[], Wire],
) -> SshWire:
    """Log in to the box once. Its host key is checked before anything is sent.

    At first contact that key is pinned after the login succeeded, with the box's record `known`.
    `again` makes a further login, for a box that allows one command at a time in each. Raises
    UnreachableError, HostKeyError, UsageError (`host_key` is not a fingerprint), BoxstrapError if
    nothing can be written here.
    """
    endpoint, prompt = dialing.endpoint, Prompt(say)
    try:
        check = HostKeyCheck(
            endpoint, known, prompt, expected=host_key, first_contact=first_contact
        )
        keys = KeyLogin(endpoint, check, prompt, last_key=known.key)
        connection = _connection(check, keys, dialing)
        connection.client.set_missing_host_key_policy(_HostKeyPolicy(check))
        _open(connection, dialing)
        check.keep()
    except BaseException:
        dialing.close()
        raise
    return SshWire(endpoint.label, connection, dialing, keys, again)


def _connection(check: HostKeyCheck, keys: KeyLogin, dialing: PendingConnection) -> Connection:
    """Make Fabric's connection with all settings given, so that it looks nothing up itself."""
    endpoint = dialing.endpoint
    return Connection(
        host=endpoint.hostname,
        user=endpoint.user,
        port=endpoint.port,
        forward_agent=False,
        gateway=False,
        config=Config(ssh_config=SSHConfig(), lazy=True),
        connect_kwargs={
            "sock": dialing.socket(),
            "transport_factory": partial(BoxTransport, kinds=check.wanted_kinds()),
            "auth_strategy": keys,
            "banner_timeout": _BANNER_TIMEOUT,
            "auth_timeout": _AUTH_TIMEOUT,
        },
    )


def _open(connection: Connection, dialing: PendingConnection) -> None:
    endpoint = dialing.endpoint
    try:
        connection.open()
    except (paramiko.SSHException, EOFError, OSError) as error:
        transport = connection.client.get_transport()
        disconnect_reason = sanitize(getattr(transport, "disconnect_reason", "")).strip()
        said = disconnect_reason or sanitize(str(error)).strip() or "it hung up, or took too long"
        proxy = dialing.proxy_errors()
        raise LoginBroken(
            f"the SSH handshake failed: {said}." + (f"\n{proxy}" if proxy else ""),
            where=endpoint.label,
            hint=f"See what OpenSSH says: ssh -v {endpoint.alias}",
        ) from None


class _HostKeyPolicy(paramiko.MissingHostKeyPolicy):
    """paramiko asks this about every host key, because it is given no known ones."""

    def __init__(self, check: HostKeyCheck) -> None:
        self._check = check

    def missing_host_key(
        self,
        client: paramiko.SSHClient,  # noqa: ARG002 - paramiko's
        hostname: str,  # noqa: ARG002
        key: paramiko.PKey,
    ) -> None:
        """Raise HostKeyError unless the key may be trusted."""
        self._check.judge(PublicKey(key.get_name(), key.asbytes()))


class SshWire:
    def __init__(
        self,
        label: str,
        connection: Connection,
        dialing: PendingConnection,
        keys: KeyLogin,
        again: Callable[[], Wire],
    ) -> None:
        self.label = label
        self.used_key = keys.used  # fingerprint of the key that logged in; `KnownBox.key` keeps it
        self.silent_key = keys.silent
        """That key, if it can log in once more without asking anybody anything."""
        self._connection = connection
        self._dialing = dialing
        self._transport: BoxTransport = connection.transport
        self._heartbeat = Heartbeat(self._transport)
        self._opening = threading.Lock()
        """Held while a session is opened: paramiko keeps one refusal, for whoever asks first."""
        self._has_started = False
        self._beside = DeferredLogin(again)

    def start(self, command: str) -> Stream:
        """Run `command` with the login shell of the box. Raises LinkLost, and as a login. Where
        sshd takes no more sessions (MaxSessions), it runs in a further login."""
        try:
            with self._opening:
                channel = self._transport.open_session(timeout=_START_TIMEOUT)
            self._has_started = True
            stream = SshStream(channel, self)
            with within(_START_TIMEOUT, partial(_let_go, channel)):
                channel.exec_command(command)
        except (paramiko.SSHException, EOFError, OSError) as error:
            refused = isinstance(error, paramiko.ChannelException)
            if refused and self._has_started and self.alive():
                return self._beside.wire(has_answered=True).start(command)
            if self.alive():
                raise UnreachableError(
                    f"it does not run commands: {sanitize(str(error))}.",
                    where=self.label,
                    hint="Some providers' proxies are interactive only: use the direct SSH "
                    "address that the provider's page shows (RunPod: “SSH over exposed TCP”).",
                ) from None
            raise self.lost() from None
        return stream

    def alive(self) -> bool:
        # paramiko closes the channels of a lost link before it says that it is lost.
        broken = self._transport.saved_exception
        is_broken = broken is not None and not isinstance(broken, paramiko.ChannelException)
        return self._transport.is_active() and not is_broken

    def connect(self, host: str, port: int) -> Pipe:
        try:
            return self._transport.open_channel(
                "direct-tcpip",
                (host, port),
                ("127.0.0.1", 0),
                window_size=_PIPE_WINDOW,
                timeout=_START_TIMEOUT,
            )
        except paramiko.ChannelException as error:
            kind = PermissionError if error.code == _FORBIDDEN else ConnectionRefusedError
            raise kind(sanitize(str(error))) from None
        except (paramiko.SSHException, EOFError, OSError):
            raise self.lost() from None

    def close(self) -> None:
        self._heartbeat.stop()
        self._beside.close()
        self._transport.close()
        self._connection.close()
        self._dialing.close()

    def lost(self) -> LinkLost:
        if self._heartbeat.died:
            return LinkLost(self.label, "the link was lost: the box stopped answering")
        disconnect_reason = sanitize(self._transport.disconnect_reason).strip()
        return LinkLost(
            self.label,
            f"the box closed the link{f': {disconnect_reason}' if disconnect_reason else ''}",
        )


def _let_go(channel: paramiko.Channel) -> None:
    """Close the channel; that the link is gone already is not an error."""
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        channel.close()


class SshStream:
    """One command on a box, read directly from its channel."""

    def __init__(self, channel: paramiko.Channel, wire: SshWire) -> None:
        self._channel = channel
        self._wire = wire
        self._piece = memoryview(b"")
        self._closed = False
        self._errors = ErrorTail(channel.recv_stderr, OSError, EOFError, paramiko.SSHException)

    def read(self, n: int) -> bytes:
        if not self._piece:
            try:
                data = self._channel.recv(max(n, _GULP))
            except (OSError, EOFError, paramiko.SSHException):
                # The link was lost while the box was told how much was read.
                if self._closed:
                    return b""
                raise self._wire.lost() from None
            is_cut = not data and not self._channel.eof_received  # without the box's EOF
            if is_cut and not self._closed and not self._wire.alive():
                raise self._wire.lost()
            self._piece = memoryview(data)
        head, self._piece = self._piece[:n], self._piece[n:]
        return bytes(head)

    def read_err(self) -> bytes:
        if self._channel.eof_received or self._channel.closed:
            self._errors.join(1)
        return self._errors.last()

    def write(self, b: bytes) -> None:
        rest = memoryview(b)
        while rest:
            try:
                sent = self._channel.send(bytes(rest[:PIECE]))
            except (OSError, EOFError, paramiko.SSHException):
                sent = 0
            if not sent:
                if not self._wire.alive():
                    raise self._wire.lost()
                raise BrokenPipeError("the command on the box no longer reads")
            rest = rest[sent:]

    def close_write(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()

    def exit_status(self) -> int | None:
        code = self._channel.recv_exit_status()
        if code >= 0:
            return code
        if not self._wire.alive() and not self._closed:
            raise self._wire.lost()
        return None

    def close(self) -> None:
        self._closed = True
        _let_go(self._channel)
