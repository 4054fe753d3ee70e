"""The shared connection: opened once, joined by later commands, and never another one's."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bootstrap.boxes.login import BoxLogin
from bootstrap.errors import UnreachableError
from bootstrap.link import BoxOptions, Endpoint, KnownBox, LinkLost, keys, mux, record, shared
from bootstrap.link.exchange import run_script, run_script_checked
from bootstrap.link.mux import SharedWire
from bootstrap.link.ssh import SshWire
from tests.logins import login_to
from tests.programs import captured
from tests.sshd import Relay, Sshd, keygen, start_agent
from tests.unit.link.conftest import SshUser
from tests.waiting import slowness, wait_until

pytestmark = pytest.mark.slow
PATIENCE_S = 20


class KeepingUser:
    """A user whose connections stay open; `known` is the box that they logged in to."""

    def __init__(self, user: SshUser) -> None:
        self.user = user
        self.boxes: list[KnownBox] = []
        self.processes: set[int] = set()

    def login(self, host: str = "box", **options: str) -> BoxLogin:
        endpoint = self.user.endpoint(host, **options)
        known = self.user.box(host)
        self.boxes.append(known)
        return login_to(known, endpoint, self.user.said.append)

    def by_relay(self, server: Sshd, **options: float) -> Relay:
        """Write an ssh config by which the box is reached over a relay."""
        relay = Relay(server.port, **options)
        alias = self.user.alias("box", server)
        self.user.write(alias.replace(f"Port {server.port}", f"Port {relay.port}"))
        return relay

    def contact(self, host: str = "box", **options: str) -> BoxLogin:
        """Log in, and leave: what may be opened is being opened."""
        box = self.login(host, **options)
        assert run_script(box.wire, "echo here") == b"here\n"
        box.save(box.known)
        box.close()
        shared.open_offered()
        return box

    def open(self, host: str = "box", **options: str) -> Path:
        """Log in, and wait until the connection is open; return its socket."""
        box = self.contact(host, **options)
        path = socket_of(box)
        opening = path.with_suffix(shared._OPENING)
        wait_until(lambda: mux.is_alive(str(path)) and not opening.exists())
        return path


def socket_of(box: BoxLogin) -> Path:
    assert box.endpoint
    path = shared._socket_of(box.known, box.endpoint)
    assert path
    return path


def logins(server: Sshd) -> int:
    return server.log.read_text().count("Accepted publickey")


def pid_of(path: Path) -> int:
    said = captured(["ssh", "-F", "none", "-S", str(path), "-O", "check", "box"])  # fmt: skip
    return int(said.stderr.partition("pid=")[2].partition(")")[0])


@pytest.fixture
def keeping(ssh_user: SshUser, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeepingUser]:
    monkeypatch.setenv(shared.VARIABLE, "60s")
    keys._loaded.clear()
    keeping = KeepingUser(ssh_user)
    with tempfile.TemporaryDirectory(prefix="bx-") as short:  # a socket's path must be
        monkeypatch.setattr("bootstrap.paths.state_dir", lambda: Path(short))
        yield keeping
        for box in keeping.boxes:
            shared.close(box)
    shared._offered.clear()


def test_later_commands_use_the_shared_connection_without_a_login(
    keeping: KeepingUser, server: Sshd
) -> None:
    path = keeping.open()
    before = logins(server)
    assert before == 2  # the first command's, and that which stays
    for _ in range(2):
        with keeping.login() as box:
            box.dial()
            assert isinstance(box.wire, SharedWire)
            assert box.shared_socket == str(path)
            asked = run_script_checked(box.wire, "cat; echo no >&2; exit 7", b"x" * 3_000_000)
            assert (len(asked.output), asked.code, asked.errors) == (3_000_000, 7, b"no\n")
            assert run_script(box.wire, "echo again") == b"again\n"
            killed = box.wire.start("kill -9 $$")
            assert (killed.read(9), killed.exit_status()) == (b"", None)
            ended = box.wire.start("sh -c 'echo a\necho b'; exit 3")
            pieces = list(iter(lambda: ended.read(9), b""))  # noqa: B023 - read at once
            assert (b"".join(pieces), ended.exit_status()) == (b"a\nb\n", 3)
    assert logins(server) == before
    assert not box.wire.alive()


def test_a_shared_connection_is_used_only_for_the_same_user_address_key_and_pin(
    keeping: KeepingUser, server: Sshd, tmp_path: Path
) -> None:
    path = keeping.open()
    box = keeping.login()
    known, endpoint = box.known, box.endpoint
    assert endpoint

    def socket(known: KnownBox = known, endpoint: Endpoint = endpoint) -> Path | None:
        return shared._socket_of(known, endpoint)

    assert socket() == path
    others = [
        socket(endpoint=replace(endpoint, user="other")),
        socket(endpoint=replace(endpoint, port=endpoint.port + 1)),
        socket(endpoint=replace(endpoint, hostname="127.0.0.2")),
        socket(endpoint=replace(endpoint, chosen_identity=tmp_path / "id")),
        socket(known=replace(known, created=known.created + 1)),  # forgotten, or --new-box
    ]
    known.known_hosts.write_text(known.known_hosts.read_text().replace("AAAA", "AAAB"))
    others.append(socket())
    assert len({path, *others, None}) == len(others) + 2
    assert socket(endpoint=replace(endpoint, proxy_command="nc 127.0.0.1 1")) is None


@pytest.mark.parametrize("how", ["host key", "revoked", "moves much", "off"])
def test_a_command_with_host_key_a_revoked_key_or_much_to_transfer_opens_its_own_login(
    how: str, keeping: KeepingUser, server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeping.open()
    box = keeping.login()
    if how == "host key":
        box.options = BoxOptions(host_key=server.fingerprint)
    elif how == "revoked":
        key = record.pins_of(box.known)[0][1]
        keeping.user.known_hosts.write_text(f"@revoked * {key.line}\n")
    elif how == "moves much":
        box.shares = False
    else:
        monkeypatch.setenv(shared.VARIABLE, "0")
    assert box._joined() is None


def test_a_login_that_asked_for_a_passphrase_opens_no_shared_connection(
    keeping: KeepingUser, start_server: Callable[..., Sshd], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = keygen(keeping.user.home / "secret", passphrase="opensesame")
    server = start_server("box", secret)
    keeping.user.write(keeping.user.alias("box", server, f"IdentityFile {secret}"), identity=None)
    monkeypatch.setattr("bootstrap.link.prompt.Prompt.has_terminal", lambda _: True)
    monkeypatch.setattr("bootstrap.link.prompt.Prompt.secret", lambda *_: "opensesame")
    with keeping.login() as box:
        assert run_script(box.wire, "echo here") == b"here\n"
    assert not shared._offered
    assert logins(server) == 1


def test_a_shared_connection_is_opened_by_an_agent_key_unless_the_agent_asks_the_user(
    keeping: KeepingUser, server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sock, ask = tmp_path / "agent", tmp_path / "ask"
    ask.write_text("#!/bin/sh\nsleep 0.5\n")  # a person who presses Enter
    ask.chmod(0o700)
    asks = {"SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": ":9"}
    agent = start_agent(sock, **asks)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(sock))
        subprocess.run(["ssh-add", "-q", "-c", str(keeping.user.key)], check=True)
        with keeping.login() as box:
            assert run_script(box.wire, "echo here") == b"here\n"
        assert not shared._offered
        assert logins(server) == 1
        subprocess.run(["ssh-add", "-q", "-D"], check=True, stderr=subprocess.DEVNULL)
        subprocess.run(["ssh-add", "-q", str(keeping.user.key)], check=True)
        keeping.open()
        assert logins(server) == 3
    finally:
        agent.terminate()
        agent.wait()


def test_a_failed_shared_connection_is_not_retried_with_each_command(
    keeping: KeepingUser, start_server: Callable[..., Sshd]
) -> None:
    server = start_server("box", keeping.user.key, options=["MaxAuthTries 1"])
    keeping.user.write(keeping.user.alias("box", server))
    box = keeping.login()
    _ = box.wire
    box.save(box.known)
    box.close()
    server.authorized.write_text("")
    shared.open_offered()
    wait_until(lambda: "Failed publickey" in server.log.read_text())
    (opening,) = socket_of(box).parent.glob(f"{shared._of_box(box.known)}*.opening")
    server.authorize(keeping.user.key)
    keeping.contact()
    assert opening.exists()
    time.sleep(0.5)
    assert not shared.is_open(box.known)
    shared.close(box.known)
    assert not opening.exists()
    opening.touch()
    os.utime(opening, (0, 0))
    keeping.open()


def test_three_commands_at_once_open_one_shared_login(keeping: KeepingUser, server: Sshd) -> None:
    for _ in range(3):
        box = keeping.login()
        assert run_script(box.wire, "echo here") == b"here\n"
        box.save(box.known)
        box.close()
    before, offered = logins(server), dict(shared._offered)
    for _ in range(3):
        shared._offered.update(offered)
        shared.open_offered()
    wait_until(lambda: shared.is_open(box.known))
    time.sleep(0.3)
    assert logins(server) == before + 1


def test_the_login_after_a_shared_connection_crashed_opens_another(
    keeping: KeepingUser, server: Sshd
) -> None:
    path = keeping.open()
    os.kill(pid_of(path), signal.SIGKILL)
    wait_until(lambda: not mux.is_alive(str(path)))
    assert path.is_socket()
    box = keeping.login()
    box.dial()
    assert not path.exists()
    assert isinstance(box.wire, SshWire)
    box.close()
    shared.open_offered()
    wait_until(lambda: mux.is_alive(str(path)))


@pytest.mark.parametrize("fault", ["box", "master"])
def test_a_command_logs_in_itself_at_once_if_the_shared_connection_does_not_respond(
    fault: str, keeping: KeepingUser, start_server: Callable[..., Sshd], tmp_path: Path
) -> None:
    server = start_server("box", keeping.user.key)
    relay = keeping.by_relay(server)
    path = keeping.open()
    master = pid_of(path)
    if fault == "box":
        relay.cut()
    else:
        os.kill(master, signal.SIGSTOP)
    box = keeping.login()
    keeping.user.write(keeping.user.alias("box", server))  # the way around the relay
    began: list[float] = []

    def log_in() -> SshWire:
        began.append(time.monotonic())
        return keeping.user.reach("box", box=box.known)

    box._log_in = log_in  # type: ignore[method-assign]
    asked, file = time.monotonic(), tmp_path / "ran"
    box.dial()
    assert run_script(box.wire, f"echo once >>{file}") == b""
    assert began[0] - asked < 0.3 * slowness()
    os.kill(master, signal.SIGCONT)
    relay.heal()
    time.sleep(0.3)
    assert file.read_text() == "once\n", "it ran over both"
    relay.close()
    box.close()
    if box._dialing:
        box._dialing.close()


@pytest.mark.parametrize("has_answered", [True, False])
def test_a_box_that_stops_answering_over_a_shared_connection_is_reported_as_a_lost_link(
    has_answered: bool, keeping: KeepingUser, start_server: Callable[..., Sshd]
) -> None:
    server = start_server("box", keeping.user.key)
    relay = keeping.by_relay(server)
    keeping.open()
    tries: list[float] = []

    def log_in() -> SshWire:
        tries.append(time.monotonic())
        if len(tries) == 1:
            raise UnreachableError("no answer within 10 s.", where="box")
        relay.heal()
        return keeping.user.reach("box", box=box.known)

    with keeping.login() as box:
        box._log_in = log_in  # type: ignore[method-assign]
        box.dial()
        if has_answered:
            assert run_script(box.wire, "echo first") == b"first\n"
        relay.cut()
        if has_answered:
            assert box.ask(lambda now: run_script(now.wire, "echo again")) == b"again\n"
        else:
            with pytest.raises(UnreachableError, match="no answer"):
                box.ask(lambda now: run_script(now.wire, "true"))
        assert len(tries) == 1 + has_answered
    relay.close()


def test_a_login_for_a_large_transfer_is_tried_again_if_the_box_is_out_of_reach_once(
    keeping: KeepingUser, server: Sshd
) -> None:
    keeping.open()
    with keeping.login() as box:
        box.dial()
        assert run_script(box.wire, "echo first") == b"first\n"
        tries = list[float]()

        def log_in() -> SshWire:
            tries.append(time.monotonic())
            if len(tries) == 1:
                raise UnreachableError("no answer within 10 s.", where="box")
            return keeping.user.reach("box", box=box.known)

        box._log_in = log_in  # type: ignore[method-assign]
        assert not box.ask(lambda asked: asked.expect(10**12)), "it has logged in by then"
        assert (len(tries), box.shared_socket) == (2, "")
        assert run_script(box.wire, "echo again") == b"again\n"


def test_a_command_to_a_slow_box_still_uses_the_shared_connection_and_closes_its_own_login(
    keeping: KeepingUser, start_server: Callable[..., Sshd]
) -> None:
    """What goes over the connection of others, as their ssh, is not ended for that."""
    server = start_server("box", keeping.user.key)
    relay = keeping.by_relay(server, delay=0.2)
    path = keeping.open()
    with keeping.login() as box:
        box.dial()
        before = logins(server)
        assert run_script(box.wire, "echo late") == b"late\n"
        assert box.shared_socket == str(path)
        assert run_script(box.wire, "echo again") == b"again\n"
        login = box.link.wire._instead  # type: ignore[attr-defined]
        wait_until(lambda: login.is_over)
    assert mux.is_alive(str(path))
    assert logins(server) - before <= 1
    relay.close()


def test_a_command_opens_its_own_login_if_the_shared_connection_admits_no_more_commands(
    keeping: KeepingUser, start_server: Callable[..., Sshd]
) -> None:
    server = start_server("box", keeping.user.key, options=["MaxSessions 1"])
    keeping.user.write(keeping.user.alias("box", server))
    keeping.open()
    with keeping.login() as box:
        box.dial()
        first = box.wire.start("cat")
        before = logins(server)
        second = box.wire.start("echo second")
        assert second.read(99) == b"second\n"
        assert logins(server) == before + 1
        first.write(b"first")
        assert first.read(99) == b"first"


def test_closing_the_shared_connection_gives_commands_that_use_it_a_link_lost_error(
    keeping: KeepingUser, server: Sshd
) -> None:
    path = keeping.open()
    with keeping.login() as box:
        box.dial()
        stream = box.wire.start("sleep 60")
        shared.close(box.known)
        with pytest.raises(LinkLost):
            stream.read(9)
    assert not path.exists()
    assert not shared.is_open(box.known)


def test_a_state_folder_path_too_long_for_a_socket_opens_no_shared_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No folder that anybody could have made, as one in /tmp, stands in for it."""
    longest = shared._SOCKET_PATH_MAX - len("/ssh/") - 16 - len(".0123456789abcdef")
    for length, shares in ((longest, True), (longest + 1, False)):
        state = Path("/" + "x" * (length - 1))
        monkeypatch.setattr("bootstrap.paths.state_dir", lambda state=state: state)
        assert shared._folder() == (state / "ssh" if shares else None)
