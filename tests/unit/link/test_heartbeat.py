"""Links that die silently are noticed; slow ones are kept. How fast bytes move: `pytest -s`."""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import psutil
import pytest

from bootstrap.errors import exit_code
from bootstrap.link import LinkLost, ssh
from bootstrap.link.exchange import run_script
from bootstrap.link.ssh import SshWire
from tests.sshd import Relay, Sshd
from tests.unit.link.conftest import SshUser
from tests.waiting import slowness, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def relay(server: Sshd) -> Iterator[Relay]:
    relay = Relay(server.port)
    yield relay
    relay.close()


def through(ssh_user: SshUser, relay: Relay, *lines: str) -> SshWire:
    text = ["Host far", "HostName 127.0.0.1", f"Port {relay.port}", *lines]
    ssh_user.write("\n ".join(text))
    return ssh_user.login("far")


def seconds_until_lost(action: Callable[[], object]) -> float:
    begun = time.monotonic()
    with pytest.raises(LinkLost) as caught:
        action()
    assert exit_code(caught.value) == 3
    return time.monotonic() - begun


def test_the_limits_for_a_silent_link_are_4_seconds_to_a_test_and_12_to_giving_up() -> None:
    assert ssh.ASK_AFTER == 4.0
    assert ssh.DEAD_AFTER == 12.0


def test_a_read_from_a_box_ends_12_seconds_after_a_cut(ssh_user: SshUser, relay: Relay) -> None:
    """This test uses the real timeouts; the others shorten them."""
    wire = through(ssh_user, relay)
    stream = wire.start("echo first; sleep 600")
    assert stream.read(100) == b"first\n"
    relay.cut()
    took = seconds_until_lost(lambda: stream.read(100))
    print(f"\na cut link was noticed after {took:.1f} s")
    assert 8 < took <= 12 * slowness()
    assert not wire.alive()
    seconds_until_lost(stream.exit_status)
    seconds_until_lost(lambda: wire.start("true"))
    seconds_until_lost(lambda: run_script(wire, "true"))


def shorten(monkeypatch: pytest.MonkeyPatch, dead_after: float) -> None:
    init = ssh.Heartbeat.__init__
    monkeypatch.setattr(ssh, "_TICK", 0.1)
    monkeypatch.setattr(
        ssh.Heartbeat, "__init__", lambda self, transport: init(self, transport, 0.5, dead_after)
    )


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten(monkeypatch, 1.5)


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time enough for a living box to answer on a busy machine."""
    shorten(monkeypatch, 3.0)


@pytest.mark.usefixtures("hurry")
def test_a_blocked_write_to_a_box_ends_soon_after_a_cut(ssh_user: SshUser, relay: Relay) -> None:
    wire = through(ssh_user, relay)
    stream = wire.start("cat >/dev/null")
    piece = bytes(1 << 20)

    def write() -> None:
        while True:
            stream.write(piece)

    threading.Timer(0.3, relay.cut).start()
    assert seconds_until_lost(write) < 10


@pytest.mark.usefixtures("hurry")
def test_a_read_from_a_box_ends_if_the_link_behind_its_proxy_is_cut(
    ssh_user: SshUser, server: Sshd, relay: Relay
) -> None:
    if not os.path.exists("/usr/bin/nc") and not os.path.exists("/bin/nc"):  # noqa: PTH110
        command = (
            "python3 -c 'import socket,sys,threading,os;"
            's=socket.create_connection(("127.0.0.1",int(sys.argv[1])));'
            "threading.Thread(target=lambda:[s.sendall(d) for d in iter("
            'lambda:os.read(0,65536),b"")],daemon=True).start();'
            '[os.write(1,d) for d in iter(lambda:s.recv(65536),b"")]\' ' + str(relay.port)
        )
    else:
        command = f"nc 127.0.0.1 {relay.port}"
    wire = through(ssh_user, relay, f"ProxyCommand {command}")
    stream = wire.start("sleep 600")
    relay.cut()
    assert seconds_until_lost(lambda: stream.read(1)) < 10


@pytest.mark.usefixtures("hurry")
def test_a_stopped_sshd_on_a_box_is_noticed_as_a_lost_link(ssh_user: SshUser, server: Sshd) -> None:
    wire = ssh_user.login("box")
    stream = wire.start("echo $PPID; sleep 600")
    pid = int(stream.read(100))
    assert "sshd" in psutil.Process(pid).name()
    os.kill(pid, signal.SIGSTOP)
    try:
        assert seconds_until_lost(lambda: stream.read(1)) < 10
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_closed_connection_to_a_box_is_noticed_at_once(ssh_user: SshUser, server: Sshd) -> None:
    wire = ssh_user.login("box")
    stream = wire.start("echo $PPID; sleep 600")
    os.kill(int(stream.read(100)), signal.SIGKILL)
    assert seconds_until_lost(lambda: stream.read(1)) < 8  # before any heartbeat


@pytest.mark.usefixtures("alive")
def test_a_silent_link_to_a_box_that_answers_stays_open(ssh_user: SshUser, relay: Relay) -> None:
    wire = through(ssh_user, relay)
    stream = wire.start("sleep 4; echo still here")
    assert stream.read(100) == b"still here\n"
    assert wire.alive()
    assert stream.exit_status() == 0


@pytest.mark.usefixtures("alive")
def test_a_slow_upload_to_a_box_is_not_mistaken_for_a_lost_link(
    ssh_user: SshUser, server: Sshd
) -> None:
    """On a slow link with full buffers answers are late, but something arrives."""
    listener = socket.create_server(("127.0.0.1", 0))
    ssh_user.write(f"Host far\n HostName 127.0.0.1\n Port {listener.getsockname()[1]}")

    def pump() -> None:
        near, _ = listener.accept()
        far = socket.create_connection(("127.0.0.1", server.port))

        def back() -> None:
            with contextlib.suppress(OSError):
                while data := far.recv(65536):
                    near.sendall(data)

        threading.Thread(target=back, daemon=True).start()
        with near, far:
            sent = 0
            while data := near.recv(16384):
                sent += len(data)
                if sent > 65536:
                    time.sleep(0.05)  # about 300 KB/s
                far.sendall(data)

    threading.Thread(target=pump, daemon=True).start()
    wire = ssh_user.login("far")
    stream = wire.start("wc -c")
    stream.write(bytes(1_500_000))
    stream.close_write()
    assert stream.read(100).strip() == b"1500000"
    wire.close()
    listener.close()


def test_a_link_whose_40_mb_of_output_nobody_reads_for_seconds_stays_open(
    ssh_user: SshUser, server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full window is not silence: the box still answers."""
    shorten(monkeypatch, 2.0)
    wire = ssh_user.login("box")
    stream = wire.start("head -c 40000000 /dev/zero")
    time.sleep(3.5)
    size = 0
    while piece := stream.read(1 << 20):
        size += len(piece)
    assert size == 40_000_000


@pytest.mark.usefixtures("alive")
def test_a_link_to_a_box_survives_that_boxstrap_was_stopped_for_ten_minutes(
    ssh_user: SshUser, server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-Z and fg: the silence in between was not the box's."""
    wire = ssh_user.login("box")
    ahead = 0.0
    clock = time.monotonic

    class BeatClock:
        @staticmethod
        def monotonic() -> float:
            return clock() + ahead

    monkeypatch.setattr(ssh, "time", BeatClock)
    monkeypatch.setattr("bootstrap.link.dial.time.monotonic", BeatClock.monotonic, raising=True)
    ahead = 600.0
    time.sleep(0.5)
    assert run_script(wire, "echo alive") == b"alive\n"


def test_closing_a_connection_ends_its_heartbeat_threads(ssh_user: SshUser, server: Sshd) -> None:
    before = set(threading.enumerate())
    wire = ssh_user.login("box")
    names = {"heartbeat", "heartbeat-ask", "stderr"}
    assert names & {thread.name for thread in set(threading.enumerate()) - before}
    wire.close()
    wait_until(
        lambda: not names & {thread.name for thread in set(threading.enumerate()) - before},
        threading.enumerate,
    )


SIZE = 60_000_000


def test_a_transfer_from_a_box_half_a_second_away_is_faster_than_6_mb_a_second(
    ssh_user: SshUser, server: Sshd
) -> None:
    """At a round trip of half a second, windows of 2 MiB would limit it to 4 MB/s."""
    relay = Relay(server.port, delay=0.25)
    ssh_user.write(f"Host far\n HostName 127.0.0.1\n Port {relay.port}")
    wire = ssh_user.login("far")
    stream = wire.start(f"head -c {SIZE} /dev/zero")
    # More than that is on its way before anything is read.
    wait_until(lambda: len(stream._channel.in_buffer) > 8 << 20)
    begun, size = time.monotonic(), 0
    while piece := stream.read(1 << 20):
        size += len(piece)
    speed = size / (time.monotonic() - begun) / 1e6
    print(f"\nat 500 ms: {speed:.0f} MB/s down")
    wire.close()
    relay.close()
    assert size == SIZE
    assert speed > 6 / slowness()


def test_a_transfer_succeeds_with_a_box_that_renegotiates_ssh_keys_often(
    ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    server = start_server("box", ssh_user.key, options=["RekeyLimit 8M"])
    ssh_user.write(ssh_user.alias("box", server))
    wire = ssh_user.login("box")
    stream = wire.start("tee /dev/null | tail -c 40000000")
    stream.write(bytes(40_000_000))
    stream.close_write()
    size = 0
    while piece := stream.read(1 << 20):
        size += len(piece)
    assert (size, stream.exit_status()) == (40_000_000, 0)
