"""A box on loopback, a user with one key, and a way to log in."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bootstrap.link import KnownBox, parse_host, record, registry
from bootstrap.link.dial import dial
from bootstrap.link.endpoint import Endpoint, resolve
from bootstrap.link.ssh import SshWire, login
from tests.sshd import SSHD, Sshd, keygen


class SshUser:
    """A user with an ssh config who logs in to boxes; `said` collects the messages."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.config = home / "config"
        self.known_hosts = home / "known_hosts"
        self.said: list[str] = []
        self._wires: list[SshWire] = []
        self.key = keygen(home / "id_ed25519")
        self.write("")

    def write(self, text: str, *, identity: str | None = "default") -> None:
        """Write an ssh config: `text`, followed by safe defaults.

        `identity=None`: only the keys that `text` names; ssh would otherwise use the user's own.
        """
        lines = [text, "Host *", f"  UserKnownHostsFile {self.known_hosts}"]
        lines.append("  GlobalKnownHostsFile none")
        lines.append(f"  IdentityFile {self.key if identity == 'default' else 'none'}")
        self.config.write_text("\n".join(lines) + "\n")

    def alias(self, name: str, server: Sshd, *lines: str) -> str:
        return "\n  ".join([f"Host {name}", "HostName 127.0.0.1", f"Port {server.port}", *lines])

    def endpoint(self, host: str, **options: Any) -> Endpoint:
        return resolve(parse_host(host), config=self.config, **options)

    def box(self, host: str, **options: Any) -> KnownBox:
        return registry.get_or_create(parse_host(host), self.endpoint(host), **options)

    def reach(self, host: str, **options: Any) -> SshWire:
        """Log in without saving the record: what is known of the box is what the login wrote."""
        box = options.pop("box", None) or self.box(host)
        dialing = dial(self.endpoint(host))
        wire = login(dialing, box, say=self.said.append, again=lambda: self.reach(host), **options)
        self._wires.append(wire)
        return wire

    def login(self, host: str, *, identity: str | None = None, **options: Any) -> SshWire:
        box = options.pop("box", None) or self.box(host)
        dialing = dial(self.endpoint(host, identity=identity))
        wire = login(dialing, box, say=self.said.append, again=lambda: self.reach(host), **options)
        record.save_box(box)
        self._wires.append(wire)
        return wire

    def leave(self) -> None:
        for wire in self._wires:
            wire.close()


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("bootstrap.paths.state_dir", lambda: tmp_path / "state")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture
def ssh_user(tmp_path: Path) -> Iterator[SshUser]:
    home = tmp_path / "ssh_user"
    home.mkdir()
    ssh_user = SshUser(home)
    yield ssh_user
    ssh_user.leave()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., Sshd]]:
    """Start named servers; they are stopped at the end of the test."""
    if not Path(SSHD).exists():
        pytest.skip("there is no sshd here: install openssh-server to test the link")
    servers: list[Sshd] = []

    def start(name: str, *authorized: Path, **options: Any) -> Sshd:
        server = Sshd(tmp_path / name, **options)
        for key in authorized:
            server.authorize(key)
        servers.append(server.start())
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def server(start_server: Callable[..., Sshd], ssh_user: SshUser) -> Sshd:
    """A box that lets the user's key in, called `box` in their ssh config."""
    server = start_server("box", ssh_user.key)
    ssh_user.write(ssh_user.alias("box", server))
    return server
