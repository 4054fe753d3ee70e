"""A user whose account has a home of its own: ssh and boxstrap see the same ~/.ssh/config.

ssh takes the home from the account's entry in /etc/passwd, so each command runs in a mount
namespace with another passwd file.
"""

import shutil
import tempfile
from pathlib import Path

from tests.cli import Running, User, close_shared
from tests.plain_environment import BIN, PATH, forget_own_ssh
from tests.programs import captured

_INSIDE = 'mount --make-rprivate / && mount --bind "$1" /etc/passwd && shift && exec "$@"'


class Settled(User):
    """Its home has a short path, since socket paths must be short."""

    def __init__(self) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="bx-", dir="/tmp")))
        lines = Path("/etc/passwd").read_text().splitlines(keepends=True)
        own = (line for line in lines if not line.startswith("root:"))
        self._passwd = self.home / "passwd"
        self.env["PATH"] = f"{BIN}:{PATH}"  # the unwrapped ssh, which looks up the home itself
        self._passwd.write_text(f"root:x:0:0:root:{self.home}:/bin/bash\n" + "".join(own))

    @property
    def ssh_config(self) -> Path:
        return self.home / ".ssh/config"

    def begin(self, *arguments: str, program: str = "boxstrap", **env: str) -> Running:
        return self.start(str(BIN / program), *arguments, **env)

    def start(self, *command: str, **env: str) -> Running:
        """Start any program in this home."""
        return Running(self.inside(*command), self.place, {**self.env, **env})

    def inside(self, *command: str) -> list[str]:
        """The argv that runs a command in this home."""
        return ["unshare", "-m", "sh", "-c", _INSIDE, "sh", str(self._passwd), *command]

    def ssh(self, *arguments: str, stdin: str = "", rc: int = 0) -> str:
        """What the real ssh prints, in batch mode."""
        done = captured(
            self.inside("ssh", "-o", "BatchMode=yes", *arguments),
            input=stdin,
            env=self.env,
            timeout=120,
            check=False,
        )
        assert done.returncode == rc, f"exit {done.returncode}: {done.stderr}"
        return done.stdout

    def leave(self) -> None:
        """Close shared connections and remove the home."""
        close_shared(self.env)
        shutil.rmtree(self.home)
        forget_own_ssh(self.home)
