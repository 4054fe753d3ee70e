"""A box that needs no root: a private sshd on loopback, with a home in a temporary folder.

It shares this machine's files, network and processes, so it has fewer faults: its host key can
change, its sshd can die and come back. The other faults of a `RigBox` need root.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psutil

from tests.boxes.inside import folders_in
from tests.boxes.ports import free_port
from tests.boxes.proc import RigError, need, sh

_PATH = "/usr/local/bin:/usr/bin:/bin"
_START_LIMIT_S = 60.0


class LoopbackBox:
    """A subset of `RigBox`, with the same names."""

    kind = "loopback"

    def __init__(self) -> None:
        need("ssh-keygen")
        self._folder = Path(tempfile.mkdtemp(prefix="boxstrap-loopback-"))
        self.user = getpass.getuser()
        self.address, self.port = "127.0.0.1", free_port()
        self.home = str(self._folder / "home")
        self.identity = self._folder / "id"
        (self._folder / "home/.ssh").mkdir(parents=True, mode=0o700)
        _keygen(self.identity)
        shutil.copy(self.identity.with_suffix(".pub"), f"{self.home}/.ssh/authorized_keys")
        self._host_key = self._folder / "host_key"
        self._variables = ""
        self._sshd: subprocess.Popen[bytes] | None = None
        self._port_kept = contextlib.ExitStack()
        _keygen(self._host_key)
        self._configure()
        self.start_sshd()

    @property
    def host_string(self) -> str:
        """user@address:port."""
        return f"{self.user}@{self.address}:{self.port}"

    @property
    def known_fingerprint(self) -> str:
        """SHA256:… of the host key that sshd shows now."""
        return sh(["ssh-keygen", "-lf", f"{self._host_key}.pub"]).split()[1]

    def run(self, command: str, *, user: str | None = None, check: bool = True) -> str:
        """Run a bash script as a login would run it; return its standard output."""
        env = {"HOME": self.home, "USER": self.user, "PATH": _PATH, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            ["bash", "-c", command], env=env, capture_output=True, text=True, check=False
        )
        if check and done.returncode != 0:
            raise RigError(f"{command[:200]}: exit {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    def read(self, path: str) -> str:
        """A file's text."""
        return Path(path).read_text()

    def exists(self, path: str) -> bool:
        """Return whether a path exists, whatever its type."""
        return os.path.lexists(path)

    def real(self, path: str) -> str:
        """Return the path with every symlink resolved."""
        return os.path.realpath(path)

    def folders(self, path: str) -> list[str]:
        """Return the sorted names of the folders in a folder."""
        return folders_in(path)

    def new_host_key(self) -> None:
        """Give it another host key, as a new box at the same address has."""
        self.kill_sshd()
        for left in (self._host_key, Path(f"{self._host_key}.pub")):
            left.unlink()
        _keygen(self._host_key)
        self.start_sshd()

    def move(self) -> None:
        """Restart it on another port, like a container that was restarted."""
        self.kill_sshd()
        self.port = free_port()
        self._configure()
        self.start_sshd()

    def tell(self, **variables: str) -> None:
        """Set these variables in its logins, as a provider does."""
        self._variables = "".join(f" {name}={value}" for name, value in variables.items())
        self.kill_sshd()
        self._configure()
        self.start_sshd()

    def kill_sshd(self) -> None:
        """kill -9 the listener and every login; the processes that they started live on."""
        if self._sshd is None:
            return
        logins = psutil.Process(self._sshd.pid).children()
        self._sshd.kill()
        for login in logins:
            with contextlib.suppress(psutil.NoSuchProcess):
                login.kill()
        self._sshd.wait()
        self._sshd = None
        # Else another test's server may take the port, and answer where nothing should.
        kept = self._port_kept.enter_context(socket.socket())
        with contextlib.suppress(OSError):
            kept.bind((self.address, self.port))

    def start_sshd(self) -> None:
        """Start the listener; returns when it answers."""
        program = shutil.which("sshd", path=f"{_PATH}:/usr/sbin:/sbin")
        if program is None:
            raise RigError("this machine lacks sshd")
        if os.geteuid() == 0:  # what starts sshd at boot makes it: here nothing may have
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self._port_kept.close()
        self._sshd = subprocess.Popen(
            [program, "-D", "-f", str(self._folder / "config"), "-E", str(self._folder / "log")],
            stdin=subprocess.DEVNULL,
        )
        end = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < end and self._sshd.poll() is None:
            with (
                contextlib.suppress(OSError),
                socket.create_connection((self.address, self.port), timeout=1) as line,
            ):
                if line.recv(4) == b"SSH-":
                    return
            time.sleep(0.05)
        log = self._folder / "log"
        said = log.read_text()[-2000:] if log.exists() else "nothing was logged"
        raise RigError(f"no sshd (exit {self._sshd.poll()}):\n{said}")

    def stop(self) -> None:
        """Stop it and kill every process whose HOME is its home."""
        self.kill_sshd()
        self._port_kept.close()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") == self.home:
                    process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _configure(self) -> None:
        lines = (
            f"ListenAddress {self.address}:{self.port}",
            f"HostKey {self._host_key}",
            f"AuthorizedKeysFile {self.home}/.ssh/authorized_keys",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "PidFile none",
            # SetEnv overrides the account's own values.
            f"SetEnv HOME={self.home} PATH={_PATH}{self._variables}",
        )
        (self._folder / "config").write_text("".join(f"{line}\n" for line in lines))


def _keygen(path: Path) -> None:
    sh(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "loopback", "-f", str(path)])
