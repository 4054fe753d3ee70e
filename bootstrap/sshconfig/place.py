"""Which ssh config is meant, and where our entries lie."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from bootstrap import paths

VARIABLE = "BOXSTRAP_SSH_CONFIG"
"""`off`, or another file than ~/.ssh/config."""


@dataclass(frozen=True)
class ConfigPlace:
    """The user's ssh config, and our folder."""

    config: Path
    is_usual: bool = True
    """Whether ssh reads it by itself."""

    @property
    def folder(self) -> Path:
        """Where our file of entries lies, and the sockets of shared connections."""
        return paths.state_dir() / "ssh"

    @property
    def entries(self) -> Path:
        """Our file of entries."""
        return self.folder / "config"

    @property
    def off(self) -> Path:
        """It exists where `ssh-config --remove` was said last."""
        return self.folder / "off"

    @property
    def include(self) -> str:
        """Our file as an `Include` names it. A file in the home folder moves with it."""
        home = account_home()
        if self.entries.is_relative_to(home):
            return f'"~/{self.entries.relative_to(home).as_posix()}"'
        return f'"{self.entries}"'

    @property
    def ssh(self) -> list[str]:
        """How to call an ssh that reads this config."""
        return ["ssh"] if self.is_usual else ["ssh", "-F", str(self.config)]


def account_home() -> Path:
    """The home folder as ssh sees it: the account's, whatever $HOME says."""
    return Path(pwd.getpwuid(os.getuid()).pw_dir)


def find_place() -> ConfigPlace | None:
    """Where the ssh config is; None where it is to be left alone.

    With another $HOME than the account's (a test, a build, `sudo -E`) ssh would
    not see what is written there, and what it sees is not ours to change.
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
