"""Servers that break the rules of SSH: the login or the link ends with an error, within bounds."""

import contextlib
import random
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko
import pytest

from bootstrap.errors import BoxstrapError, HostKeyError, UnreachableError
from bootstrap.link import dial as dialing
from bootstrap.link import ssh, transport
from bootstrap.link.wire import ErrorTail, LinkLost
from tests.faults.plugin import Faults
from tests.hostile.measure import OBEYED
from tests.listener import Listener
from tests.sshd import USER, Sshd, keygen
from tests.unit.link.conftest import SshUser
from tests.waiting import PATIENCE_S, slowness, wait_until

pytestmark = pytest.mark.slow

GREETING = b"SSH-2.0-Box\r\n"
MIB = 1024 * 1024
Talk = Callable[[socket.socket], None]


class HostileServer:
    """A TCP server on loopback; `talk` is what it does with each connection."""

    def __init__(self, talk: Talk) -> None:
        self.sent = 0
        self._talk = talk
        self._listener = Listener(self._begin)
        self.port = self._listener.port

    def _begin(self, line: socket.socket) -> None:
        threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        with line, contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._talk(line)

    def flood(self, line: socket.socket, piece: bytes, most: int) -> None:
        """Send `piece` again and again, up to `most` bytes, and count what was sent."""
        while self.sent < most:
            line.sendall(piece)
            self.sent += len(piece)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def serve() -> Iterator[Callable[[Talk], HostileServer]]:
    made: list[HostileServer] = []

    def start(talk: Talk) -> HostileServer:
        made.append(HostileServer(talk))
        return made[-1]

    yield start
    for server in made:
        server.close()


def host(port: int) -> str:
    return f"me@127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("begin", "piece", "at_most"),
    [
        (b"SSH-2.0-", b"x" * 4096, 16 * MIB),
        (b"", b"welcome\r\n" * 500, 16 * MIB),
        (b"", b"\0" * 4096, 16 * MIB),
        (b"\n" * 200 + GREETING, b"\n" * 4096, 16 * MIB),
        (GREETING, b"\x7f\xff\xff\xf4" + b"\x00" * 4092, 16 * MIB),
        (GREETING, b"\x00\x00\x00\x0c\x0a\x02" + b"\0" * 10, 64 * MIB),
    ],
    ids=[
        *("a greeting without an end", "lines without an end", "zeros", "many lines first"),
        *("a packet of 2 GiB", "ignore me"),
    ],
)
def test_a_box_that_floods_before_the_login_is_soon_reported_as_unreachable(
    begin: bytes,
    piece: bytes,
    at_most: int,
    serve: Callable[[Talk], HostileServer],
    ssh_user: SshUser,
    faults: Faults,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The login ends soon, long before the whole flood was read."""
    monkeypatch.setattr(transport, "HANDSHAKE_S", 1.0)

    def talk(line: socket.socket) -> None:
        line.sendall(begin)
        server.flood(line, piece, 1024 * MIB)

    server = serve(talk)
    with faults.attempt("a server that breaks the rules of SSH", at="flood") as attempt:
        with pytest.raises(UnreachableError):
            ssh_user.login(host(server.port))
        attempt.noticed(at_most=20)
        assert server.sent <= at_most


def mangled(dice: random.Random, data: bytes) -> bytes:
    """Return `data` with a few bytes changed, added or left out."""
    found = bytearray(data)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(found))
        change = dice.choice(("flip", "set", "cut", "grow", "number"))
        if change == "flip":
            found[at] ^= 1 << dice.randrange(8)
        elif change == "set":
            found[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif change == "cut":
            del found[at : at + dice.randrange(1, 40)]
        elif change == "grow":
            found[at:at] = dice.randbytes(dice.randrange(1, 40))
        else:
            found[at : at + 4] = dice.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\1\0"))
        if not found:
            return b"\0"
    return bytes(found)


class Mangler:
    """A relay to a real sshd that mangles what the server sends before encryption starts."""

    def __init__(self, target: int, dice: random.Random) -> None:
        self._target = target
        self._dice = dice
        self._plain = dice.randrange(2)  # from the greeting and offer on, or only what follows

    def __call__(self, near: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", self._target)) as far:
            threading.Thread(target=self._forward, args=(near, far), daemon=True).start()
            far.settimeout(0.4)  # both sides wait for each other: nothing more comes
            number = 0
            try:
                while data := far.recv(65536):
                    near.sendall(mangled(self._dice, data) if number >= self._plain else data)
                    number += 1
            finally:
                near.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _forward(near: socket.socket, far: socket.socket) -> None:
        try:
            while data := near.recv(65536):
                far.sendall(data)
        except OSError:
            return


def test_a_mangled_ssh_handshake_is_reported_as_an_unreachable_box_or_a_wrong_host_key(
    ssh_user: SshUser,
    server: Sshd,
    serve: Callable[[Talk], HostileServer],
    seeded: random.Random,
    faults: Faults,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever paramiko makes of it, it is not reported as an error of boxstrap itself."""
    for module, name in ((transport, "HANDSHAKE_S"), (dialing, "_GREETING_TIMEOUT")):
        monkeypatch.setattr(module, name, 1.5)
    seeds = [seeded.randrange(2**32) for _ in range(40)]

    def attempt(seed: int) -> tuple[int, BaseException | None, float]:
        between = serve(Mangler(server.port, random.Random(seed)))
        began = time.monotonic()
        try:
            ssh_user.login(host(between.port), first_contact="strict")
        except BaseException as error:
            return seed, error, time.monotonic() - began
        return seed, None, time.monotonic() - began

    with ThreadPoolExecutor(8) as pool:
        for seed, error, seconds in pool.map(attempt, seeds):
            with faults.attempt("a server that breaks the rules of SSH", at=f"mangled, {seed}"):
                assert isinstance(error, UnreachableError | HostKeyError), (seed, error)
                assert not OBEYED.search(error.text().encode())
                assert seconds < 20 * slowness()


class Rude(paramiko.ServerInterface):
    """A server that lets anybody in, and then doesn't answer a request."""

    def __init__(self, *, silent_at: str) -> None:
        self.silent_at = silent_at
        self.over = threading.Event()

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        if self.silent_at == "open":
            self.over.wait(600)
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if self.silent_at == "exec":
            self.over.wait(600)
        return True


@pytest.fixture
def rude(
    serve: Callable[[Talk], HostileServer],
) -> Iterator[Callable[..., tuple[int, list[object]]]]:
    """Start a paramiko server; return its port, and its channels once they are open."""
    transports: list[paramiko.Transport] = []
    rudes: list[Rude] = []

    def start(silent_at: str = "") -> tuple[int, list[object]]:
        channels: list[object] = []

        def talk(line: socket.socket) -> None:
            made = paramiko.Transport(line)
            transports.append(made)
            made.add_server_key(paramiko.ECDSAKey.generate())
            rudes.append(Rude(silent_at=silent_at))
            made.start_server(server=rudes[-1])
            channels.append(made.accept(600))
            while made.is_active():
                time.sleep(0.05)

        return serve(talk).port, channels

    yield start
    for each in rudes:
        each.over.set()
    for one in transports:
        one.close()


@pytest.mark.parametrize("silent_at", ["open", "exec"])
def test_a_command_that_a_box_never_begins_times_out_as_unreachable(
    silent_at: str, rude, ssh_user: SshUser, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_START_TIMEOUT", 0.7)
    port, _ = rude(silent_at)
    wire = ssh_user.login(host(port))
    with faults.attempt("a server that breaks the rules of SSH", at=silent_at) as attempt:
        with pytest.raises(BoxstrapError) as caught:
            wire.start("true")
        attempt.noticed(at_most=30)
        assert isinstance(caught.value, UnreachableError)


def test_a_command_given_up_while_its_link_is_lost_raises_no_error_in_a_thread(
    rude, ssh_user: SshUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection is lost just before the timer's thread closes the channel."""
    monkeypatch.setattr(ssh, "_START_TIMEOUT", 0.3)
    closed, before = threading.Event(), {*threading.enumerate()}
    close = paramiko.Channel.close

    def close_late(channel: paramiko.Channel) -> None:
        channel.transport.sock.close()
        try:
            close(channel)
        finally:
            closed.set()

    port, _ = rude("exec")
    wire = ssh_user.login(host(port))
    monkeypatch.setattr(paramiko.Channel, "close", close_late)
    loud: list[object] = []
    monkeypatch.setattr(threading, "excepthook", loud.append)
    with pytest.raises(UnreachableError):
        wire.start("true")
    assert closed.wait(PATIENCE_S)
    for timer in {*threading.enumerate()} - before:
        if isinstance(timer, threading.Timer):
            timer.join(PATIENCE_S)
    assert not loud


def test_a_connection_that_breaks_while_output_is_read_raises_a_link_lost_error(
    rude, ssh_user: SshUser, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, channels = rude()
    wire = ssh_user.login(host(port))
    stream = wire.start("true")
    wait_until(lambda: channels)
    channels[0].send(b"x" * 1000)

    def gone(*_: object) -> int:
        raise EOFError

    monkeypatch.setattr(paramiko.Channel, "_check_add_window", gone)
    with pytest.raises(LinkLost):
        stream.read(1000)
    stream.close()
    assert stream.read(1000) == b""


@pytest.mark.parametrize("kind", ["send", "send_stderr", "both"])
def test_the_link_to_a_box_is_closed_if_the_box_sends_more_than_the_ssh_window_allows(
    kind: str, rude, ssh_user: SshUser, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data that nobody reads yet must not fill this machine's memory, be it output or errors."""
    monkeypatch.setattr(ErrorTail, "run", lambda _: None)  # slower than the box
    port, channels = rude()
    wire = ssh_user.login(host(port))
    stream = wire.start("true")
    while not channels:
        time.sleep(0.01)
    (channel,) = channels
    sends = [channel.send, channel.send_stderr] if kind == "both" else [getattr(channel, kind)]
    with faults.attempt("a server that breaks the rules of SSH", at=f"window, {kind}") as attempt:
        channel.out_window_size = 1 << 40
        sent = 0
        with contextlib.suppress(OSError, EOFError):
            while sent < 200 * MIB:
                sent += sum(send(b"x" * 32_000) for send in sends)
        wait_until(lambda: not wire.alive())
        attempt.noticed()
        assert sent < 60 * MIB
        with pytest.raises(LinkLost):
            list(iter(lambda: stream.read(MIB), b""))


@pytest.mark.parametrize(
    ("option", "weak", "strong"),
    [
        ("digests", "hmac-sha1", "hmac-sha2-256"),
        ("digests", "hmac-md5-96", "hmac-sha2-512-etm@openssh.com"),
        ("ciphers", "aes256-cbc", "aes256-ctr"),
        ("ciphers", "3des-cbc", "aes128-gcm@openssh.com"),
    ],
)
def test_a_hostile_server_that_offers_only_weak_digests_or_ciphers_is_refused(
    option: str,
    weak: str,
    strong: str,
    serve: Callable[[Talk], HostileServer],
    ssh_user: SshUser,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server, or a machine in the middle, that offers only weak algorithms gets no login."""
    monkeypatch.setattr(transport, "HANDSHAKE_S", 5.0)

    def only(name: str) -> Talk:
        def talk(line: socket.socket) -> None:
            made = paramiko.Transport(line)
            made.add_server_key(paramiko.ECDSAKey.generate())
            options = made.get_security_options()
            if option == "digests":  # AEAD ciphers need no digest
                options.ciphers = ("aes128-ctr",)
            setattr(options, option, (name,))
            made.start_server(server=Rude(silent_at=""))
            while made.is_active():
                time.sleep(0.05)

        return talk

    with pytest.raises(UnreachableError, match="handshake failed"):
        ssh_user.login(host(serve(only(weak)).port))
    ssh_user.login(host(serve(only(strong)).port))


# What a real sshd, or a machine in the middle, may offer alone: sshd option, host key type.
DOWNGRADES: dict[str, tuple[str, str]] = {
    "a key exchange with SHA-1": ("KexAlgorithms diffie-hellman-group14-sha1", "ed25519"),
    "a signature with SHA-1": ("HostKeyAlgorithms ssh-rsa", "rsa"),
    "a cipher that packets can be taken from": ("Ciphers chacha20-poly1305@openssh.com", "ed25519"),
}


@pytest.mark.parametrize("offer", DOWNGRADES)
def test_a_real_openssh_server_with_only_weak_algorithms_is_refused(
    offer: str, ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    option, kind = DOWNGRADES[offer]
    server = start_server("box", ssh_user.key, host_key_types=(kind,))
    there = f"{USER}@127.0.0.1:{server.port}"
    ssh_user.login(there)
    server.stop()
    server.options = (option,)
    server.start()
    with pytest.raises(UnreachableError, match="handshake failed"):
        ssh_user.login(there)
    assert server.log.read_text().count("Accepted publickey") == 1


def test_a_changed_host_key_is_refused_even_if_a_trusted_authority_certified_the_new_key(
    ssh_user: SshUser, start_server: Callable[..., Sshd], tmp_path: Path
) -> None:
    """Nor does a certificate authority in the user's known_hosts vouch for another key."""
    ca = keygen(tmp_path / "ca")
    ssh_user.known_hosts.write_text(f"@cert-authority * {ca.with_suffix('.pub').read_text()}")
    server = start_server("box", ssh_user.key)
    ssh_user.login(f"{USER}@127.0.0.1:{server.port}")
    for changed in (False, True):
        if changed:
            server.new_host_key()
        server.stop()
        key = server.folder / "host_ed25519.pub"
        subprocess.run(["ssh-keygen", "-q", "-s", ca, "-h", "-I", "x", key], check=True)
        server.options = (
            f"HostCertificate {server.folder}/host_ed25519-cert.pub",
            "HostKeyAlgorithms ssh-ed25519-cert-v01@openssh.com",
        )
        server.start()
        if changed:
            with pytest.raises(HostKeyError, match="changed"):
                ssh_user.login(f"{USER}@127.0.0.1:{server.port}")
        else:  # the pinned key, with a certificate or without
            ssh_user.login(f"{USER}@127.0.0.1:{server.port}")
