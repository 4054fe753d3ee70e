"""Which ssh config is used, and where our entries are."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from bootstrap import paths

VARIABLE = "BOXSTRAP_SSH_CONFIG"
"""Environment variable: `off`, or another file than ~/.ssh/config."""


@dataclass(frozen=True)
class ConfigPlace:
    """The user's ssh config, and our folder."""

    config: Path
    is_usual: bool = True
    """Whether ssh reads it by default."""

    @property
    def folder(self) -> Path:
        """The folder of our entries file and of the sockets of shared connections."""
        return paths.state_dir() / "ssh"

    @property
    def entries(self) -> Path:
        """Our file of entries."""
        return self.folder / "config"

    @property
    def off(self) -> Path:
        """A marker file that exists from `ssh-config --remove` until the next `ssh-config`."""
        return self.folder / "off"

    @property
    def include(self) -> str:
        """Our file as an `Include` names it; relative to `~` if it is in the home folder."""
        home = account_home()
        if self.entries.is_relative_to(home):
            return f'"~/{self.entries.relative_to(home).as_posix()}"'
        return f'"{self.entries}"'

    @property
    def ssh(self) -> list[str]:
        """The command for an ssh that reads this config."""
        return ["ssh"] if self.is_usual else ["ssh", "-F", str(self.config)]


def account_home() -> Path:
    """Return the home folder that ssh uses: the account's, not $HOME."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def find_place() -> ConfigPlace | None:
    """Return where the ssh config is; None if it must be left alone.

    If $HOME is not the account's (a test, a build, `sudo -E`), ssh would not
    read a config there, and the account's config must not be changed.
    """
    said = os.environ.get(VARIABLE, "")
    if said.lower() == "off":
        return None
    if said:
        return ConfigPlace(paths.expanded(said).absolute(), is_usual=False)
    home = account_home()
    if Path.home().resolve() != home.resolve():
        return None
    return ConfigPlace(home / ".ssh" / "config")
