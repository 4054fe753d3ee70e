"""A real sshd on loopback, with keys and configuration of its own in a temporary folder."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.boxes.ports import free_port
from tests.listener import Listener
from tests.programs import captured
from tests.waiting import wait_until

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
USER = getpass.getuser()
_START_LIMIT_S = 60.0


def start_agent(path: Path, **more: str) -> subprocess.Popen[bytes]:
    """Start a real ssh-agent with these variables; returns when it answers."""
    agent = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(path)], env={**os.environ, **more}, stdout=subprocess.DEVNULL
    )
    ask, own = ["ssh-add", "-l"], {**os.environ, "SSH_AUTH_SOCK": str(path)}

    def answers() -> bool:
        no_keys = 1
        return subprocess.run(ask, env=own, capture_output=True, check=False).returncode == no_keys

    wait_until(answers)
    return agent


def keygen(path: Path, *options: str, passphrase: str = "") -> Path:
    """Make a key at `path` with ssh-keygen."""
    command = ["ssh-keygen", "-q", "-f", str(path), "-N", passphrase, "-C", f"{path.name}@test"]
    if "-t" not in options:
        command += ["-t", "ed25519"]
    if "rsa" in options and "-b" not in options:
        command += ["-b", "2048"]  # generating the default 3072 bits takes about a second
    subprocess.run([*command, *options], check=True, stdin=subprocess.DEVNULL)
    return path


def fingerprint(path: Path) -> str:
    """`SHA256:…` as ssh-keygen prints it."""
    done = captured(["ssh-keygen", "-lf", path])
    return done.stdout.split()[1]


@dataclass
class Sshd:
    """One server. `authorize` lets keys in; `options` are lines of sshd_config."""

    folder: Path
    options: Iterable[str] = ()
    host_key_types: Iterable[str] = ("ed25519",)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.authorized = self.folder / "authorized_keys"
        self.authorized.touch()
        self.log = self.folder / "log"
        for kind in self.host_key_types:
            if not (self.folder / f"host_{kind}").exists():
                keygen(self.folder / f"host_{kind}", "-t", kind)

    def authorize(self, key: Path) -> None:
        public = key if key.suffix == ".pub" else key.with_name(key.name + ".pub")
        with self.authorized.open("a") as file:
            file.write(public.read_text())

    def start(self) -> Sshd:
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        keys = [f"HostKey {self.folder / f'host_{kind}'}" for kind in self.host_key_types]
        config = self.folder / "sshd_config"
        lines = [
            *self.options,
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            *keys,
            f"AuthorizedKeysFile {self.authorized}",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PidFile none",
            "LogLevel VERBOSE",
            "PermitUserRC no",
            # bash doesn't read ~/.bashrc if SHLVL says that it is nested; other shells find none.
            f"SetEnv SHLVL=9 HOME={self.folder}",
        ]
        config.write_text("\n".join(lines) + "\n")
        self.process = subprocess.Popen(
            [SSHD, "-D", "-f", str(config), "-E", str(self.log)], stdin=subprocess.DEVNULL
        )
        end = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < end and self.process.poll() is None:
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), timeout=1) as line,
            ):
                if line.recv(4) == b"SSH-":
                    return self
            time.sleep(0.02)
        raise RuntimeError(self.log.read_text()[-2000:] if self.log.exists() else "no log")

    def stop(self) -> None:
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.process = None

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.folder / f"host_{next(iter(self.host_key_types))}.pub")

    def new_host_key(self) -> None:
        """Replace the host keys, as if another box were at the same address."""
        self.stop()
        for kind in self.host_key_types:
            for path in self.folder.glob(f"host_{kind}*"):
                path.unlink()
            keygen(self.folder / f"host_{kind}", "-t", kind)
        self.start()


class Relay:
    """A TCP proxy that delays each direction, and can go silent like a cut cable."""

    def __init__(self, port: int, delay: float = 0.0) -> None:
        self._target = port
        self._delay = delay
        self._open = threading.Event()
        self._open.set()
        self._sockets: list[socket.socket] = []
        self._listener = Listener(self._join)
        self.port = self._listener.port

    def cut(self) -> None:
        """Let nothing pass from now on, and close nothing."""
        self._open.clear()

    def heal(self) -> None:
        """Let it all pass, what was held back too."""
        self._open.set()

    def close(self) -> None:
        self._open.set()
        self._listener.close()
        for one in self._sockets:
            one.close()

    def _join(self, near: socket.socket) -> None:
        far = socket.create_connection(("127.0.0.1", self._target))
        self._sockets += [near, far]
        for one in (near, far):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, sink in ((near, far), (far, near)):
            self._pump(source, sink)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        """Read in one thread, write `delay` later in another, so that pieces overlap."""
        import queue

        pieces: queue.Queue[tuple[float, bytes]] = queue.Queue(maxsize=4096)

        def read() -> None:
            data = b"start"
            while data:
                try:
                    data = source.recv(65536)
                except OSError:
                    data = b""
                pieces.put((time.monotonic() + self._delay, data))

        def write() -> None:
            while True:
                due, data = pieces.get()
                time.sleep(max(0.0, due - time.monotonic()))
                self._open.wait()
                try:
                    if not data:
                        sink.shutdown(socket.SHUT_WR)
                        return
                    sink.sendall(data)
                except OSError:
                    return

        threading.Thread(target=read, daemon=True).start()
        threading.Thread(target=write, daemon=True).start()
