"""A box that needs no root: a private sshd on loopback, with a home in a temporary folder.

It shares this machine's files, network and processes, so it has fewer faults: its host key can
change, its sshd can die and come back. The other faults of a `RigBox` need root.
"""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import psutil

from tests.boxes.inside import folders_in
from tests.boxes.keys import make_key
from tests.boxes.ports import free_port
from tests.boxes.proc import RigError
from tests.sshd import Sshd

_PATH = "/usr/local/bin:/usr/bin:/bin"


class LoopbackBox:
    """A subset of `RigBox`, with the same names."""

    kind = "loopback"

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="boxstrap-loopback-"))
        self.user = getpass.getuser()
        self.address = "127.0.0.1"
        self.home = str(self._folder / "home")
        self.identity = self._folder / "id"
        (self._folder / "home/.ssh").mkdir(parents=True, mode=0o700)
        make_key(self.identity, "loopback")
        shutil.copy(self.identity.with_suffix(".pub"), f"{self.home}/.ssh/authorized_keys")
        self._variables = ""
        self._sshd = Sshd(self._folder / "sshd")
        self._port_kept = contextlib.ExitStack()
        self.start_sshd()

    @property
    def port(self) -> int:
        return self._sshd.port

    @property
    def host_string(self) -> str:
        """user@address:port."""
        return f"{self.user}@{self.address}:{self.port}"

    @property
    def known_fingerprint(self) -> str:
        """SHA256:… of the host key that sshd shows now."""
        return self._sshd.fingerprint

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
        self._port_kept.close()
        self._sshd.new_host_key()

    def move(self) -> None:
        """Restart it on another port, like a container that was restarted."""
        self.kill_sshd()
        self._sshd.port = free_port()
        self.start_sshd()

    def tell(self, **variables: str) -> None:
        """Set these variables in its logins, as a provider does."""
        self._variables = "".join(f" {name}={value}" for name, value in variables.items())
        self.kill_sshd()
        self.start_sshd()

    def kill_sshd(self) -> None:
        """kill -9 the listener and every login; the processes that they started live on."""
        if self._sshd.process is None:
            return
        logins = psutil.Process(self._sshd.process.pid).children()
        self._sshd.process.kill()
        for login in logins:
            with contextlib.suppress(psutil.NoSuchProcess):
                login.kill()
        self._sshd.stop()
        # Else another test's server may take the port, and answer where nothing should.
        kept = self._port_kept.enter_context(socket.socket())
        with contextlib.suppress(OSError):
            kept.bind((self.address, self.port))

    def start_sshd(self) -> None:
        """Start the listener; returns when it answers."""
        self._port_kept.close()
        # SetEnv overrides the account's own values.
        self._sshd.options = (
            f"AuthorizedKeysFile {self.home}/.ssh/authorized_keys",
            f"SetEnv HOME={self.home} PATH={_PATH}{self._variables}",
        )
        self._sshd.start()

    def stop(self) -> None:
        """Stop it and kill every process whose HOME is its home."""
        self.kill_sshd()
        self._port_kept.close()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("HOME") == self.home:
                    process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
