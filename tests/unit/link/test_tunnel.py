"""Ports of a box forwarded to this machine, through a real sshd."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest

from bootstrap.errors import UsageError
from bootstrap.link import LocalWire, ReconnectingLink
from bootstrap.link.tunnel import Forward, Tunnel, forwards, hold, host_of, parse_forward
from bootstrap.link.wire import Wire
from tests.boxes.ports import free_port
from tests.listener import Listener
from tests.sshd import Sshd
from tests.unit.link.conftest import SshUser


def echo(peer: socket.socket) -> None:
    while data := peer.recv(65536):
        peer.sendall(data)


class BoxServer:
    """A server on the box, which is this machine; `talk` handles each connection."""

    def __init__(self, talk: Callable[[socket.socket], object] = echo, port: int = 0) -> None:
        self._talk = talk
        self._listener = Listener(self._begin, port)
        self.port = self._listener.port
        self.close = self._listener.close

    def _begin(self, peer: socket.socket) -> None:
        threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer: socket.socket) -> None:
        with peer, suppress(OSError):
            self._talk(peer)


class Opened:
    """A link, its tunnels and the warnings."""

    def __init__(self, login: Callable[[], Wire]) -> None:
        self.warned: list[str] = []
        self.link = ReconnectingLink(
            login, lost=lambda _: None, back=lambda: None, warn=self.warned.append
        )
        self.tunnels: list[Tunnel] = []

    def tunnel(self, port: int, here: int = 0, title: str = "") -> Tunnel:
        forward = Forward(here or free_port(), "localhost", port)
        self.tunnels.append(Tunnel(self.link, forward, self.warned.append, title))
        return self.tunnels[-1]

    def connect(self, port: int, address: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection((address, self.tunnel(port).port), timeout=120)

    def close(self) -> None:
        for tunnel in self.tunnels:
            tunnel.close()
        self.link.close()


@pytest.fixture(params=["ssh", "local"])
def opened(request: pytest.FixtureRequest, ssh_user: SshUser) -> Iterator[Opened]:
    """A link to a box over SSH, and one to this machine."""
    if request.param == "ssh":
        request.getfixturevalue("server")
    login: Callable[[], Wire] = (
        (lambda: ssh_user.login("box")) if request.param == "ssh" else LocalWire
    )
    with closing(Opened(login)) as found:
        yield found


def whole(peer: socket.socket) -> bytes:
    found = bytearray()
    while data := peer.recv(65536):
        found += data
    return bytes(found)


@pytest.mark.slow
def test_bytes_sent_through_a_tunnel_come_back_whole_in_both_directions(opened: Opened) -> None:
    data = bytes(range(250)) * (3_000_000 // 250)
    with closing(BoxServer()) as there, opened.connect(there.port) as peer:
        sending = threading.Thread(
            target=lambda: (peer.sendall(data), peer.shutdown(socket.SHUT_WR))
        )
        sending.start()
        assert whole(peer) == data
        sending.join()


def test_a_tunnel_listens_only_on_this_machines_loopback_addresses(opened: Opened) -> None:
    with closing(BoxServer()) as there:
        tunnel = opened.tunnel(there.port)
        own = {each.getsockname()[0] for each in tunnel._listeners}
        assert own <= {"127.0.0.1", "::1"}
        for address in own:
            with opened.connect(there.port, address) as peer:
                peer.sendall(b"hello")
                assert peer.recv(10) == b"hello"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_tunnel_uses_a_free_port_if_the_wanted_one_is_taken(opened: Opened, family: int) -> None:
    """Even if only one of the two addresses is taken: a browser might try that one first."""
    address = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((address, 0), family=family) as taken:
        port = taken.getsockname()[1]
        assert opened.tunnel(9, here=port).port != port


@pytest.mark.parametrize(("title", "who"), [("", "nothing"), ("Jupyter", "Jupyter no longer")])
def test_a_tunnel_to_a_closed_port_warns_once_and_works_once_that_is_open(
    title: str, who: str, opened: Opened
) -> None:
    port = free_port()
    tunnel = opened.tunnel(port, title=title)
    for _ in range(2):
        peer = socket.create_connection(("127.0.0.1", tunnel.port))
        with peer, pytest.raises(ConnectionResetError):
            peer.recv(1)
    assert opened.warned == [
        f"on the box {who} answers at port {port} of localhost; trying at each connection"
    ]
    with closing(BoxServer(port=port)):
        peer = socket.create_connection(("127.0.0.1", tunnel.port))
        with peer:
            peer.sendall(b"hello")
            assert peer.recv(10) == b"hello"


@pytest.mark.slow
def test_a_lost_link_resets_open_tunnel_connections_and_new_ones_wait_until_it_is_back(
    server: Sshd, ssh_user: SshUser
) -> None:
    """A connection that was cut off must not look like one that ended."""
    with closing(Opened(lambda: ssh_user.login("box"))) as opened, closing(BoxServer()) as there:
        tunnel = opened.tunnel(there.port)
        peer = socket.create_connection(("127.0.0.1", tunnel.port), timeout=120)
        peer.sendall(b"hello")
        assert peer.recv(10) == b"hello"
        opened.link.wire.close()
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
        peer.close()
        peer = socket.create_connection(("127.0.0.1", tunnel.port), timeout=120)
        peer.sendall(b"again")
        backs: list[bool] = []

        def back() -> None:
            backs.append(opened.link.wire.alive())
            raise KeyboardInterrupt

        time.sleep(0.5)
        with pytest.raises(KeyboardInterrupt):
            hold(opened.link, back)
        assert peer.recv(10) == b"again"
        assert backs == [True]
        peer.close()


@pytest.mark.slow
def test_a_tunnel_takes_under_24_mib_that_nobody_reads_here(
    server: Sshd, ssh_user: SshUser
) -> None:
    sent = []

    def flood(peer: socket.socket) -> None:
        while True:
            sent.append(peer.send(bytes(65536)))

    opened, there = Opened(lambda: ssh_user.login("box")), BoxServer(flood)
    with closing(opened), closing(there), opened.connect(there.port) as peer:
        peer.recv(1)
        before = -1
        while before != sum(sent):
            before = sum(sent)
            time.sleep(0.5)
        # Our SSH window, and what sshd and the kernel buffer on the way.
        print(f"sent unread: {before / 2**20:.1f} MiB")
        assert before < 24 * 2**20


def test_the_test_for_port_forwarding_says_yes_unless_sshd_forbids_it(
    server: Sshd, ssh_user: SshUser, start_server: Callable[..., Sshd]
) -> None:
    assert forwards(LocalWire())
    assert forwards(ssh_user.login("box"))
    server = start_server("forbids", ssh_user.key, options=["AllowTcpForwarding no"])
    ssh_user.write(ssh_user.alias("forbids", server))
    assert not forwards(ssh_user.login("forbids"))


@pytest.mark.parametrize(
    ("text", "forward"),
    [
        ("8080", Forward(8080, "localhost", 8080)),
        ("9000:8080", Forward(9000, "localhost", 8080)),
        ("8080:localhost:8080", Forward(8080, "localhost", 8080)),
        ("8080:10.0.0.7:80", Forward(8080, "10.0.0.7", 80)),
        ("127.0.0.1:8080:db_1:80", Forward(8080, "db_1", 80)),
        ("[::1]:8080:[2001:db8::1]:80", Forward(8080, "2001:db8::1", 80)),
    ],
)
def test_each_way_of_typing_a_tunnels_port_is_parsed(text: str, forward: Forward) -> None:
    assert parse_forward(text) == forward


@pytest.mark.parametrize(
    "text",
    [
        "", "0", "65536", "99999999999", "http", "8080:", ":8080", "8080:/tmp/socket",
        "0.0.0.0:8080:localhost:80", "*:8080:localhost:80", "192.168.0.2:8080:localhost:80",
        "8080:local host:80", "8080:$(id):80", "\uff18\uff10", "-8080",
    ],
)  # fmt: skip
def test_an_invalid_or_non_loopback_tunnel_port_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_forward(text)


def test_each_box_and_service_gets_a_localhost_name_of_its_own_for_the_browser() -> None:
    """Each is a single label: names such as a.x and b.x would share the cookies of x.localhost."""
    names = ["box", "Box", "b-ox", "b.ox", "b_ox", "5.17.27.63-46769", "x" * 63, "X" * 63, "-", "é"]
    hosts = [host_of(name) for name in names]
    assert hosts[0] == "box.localhost"
    # A login's cookie is given to all ports of its name.
    hosts += [host_of("box", "jupyter"), host_of("box", "tensorboard"), host_of("box-jupyter")]
    assert len(set(hosts)) == len(hosts) == len(names) + 3
    for host in hosts:
        label, _, rest = host.partition(".")
        assert rest == "localhost"
        assert 0 < len(label) <= 63
        assert label.strip("-") == label
