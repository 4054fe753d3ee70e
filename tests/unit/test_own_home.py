"""Tests and demo never read the home of the user who runs them.

The home here breaks whatever reads it. It is also the account's, since OpenSSH ignores $HOME.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plain_environment import BIN, HERE, PATH, shared
from tests.programs import captured
from tests.sshd import keygen

pytestmark = [pytest.mark.boxes, pytest.mark.slow]

_MARK = 'echo "$0" >>"$HOME/read"\n'
_FILES = {
    ".ssh/config": "Nonsense yes\n",
    ".ssh/rc": _MARK,
    ".gitconfig": "[broken\n",
    ".config/git/config": "[broken\n",
    ".tmux.conf": f"run-shell '{_MARK.strip()}'\n",
    ".local/state/boxstrap/boxes/old/box.json": '{"name": "old", "host_text": "root@203.0.113.7"}',
    ".config/boxstrap/profiles/demo.yaml": "version: [\n",
    **dict.fromkeys((".bashrc", ".bash_profile", ".profile", ".zshenv", ".cshrc"), _MARK),
}
_INSIDE = 'mount --make-rprivate / && mount --bind "$HOME/passwd" /etc/passwd && exec "$@"'


class Full:
    """Runs programs as a user with that home and with environment settings of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        for name, text in _FILES.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for kind in ("ed25519", "rsa"):
            keygen(home / f".ssh/id_{kind}", "-t", kind)
        others = Path("/etc/passwd").read_text().partition("\n")[2]
        (home / "passwd").write_text(f"root:x:0:0:root:{home}:/bin/bash\n{others}")
        self.env = {
            **{name: value for name, value in os.environ.items() if name != "HOME"},
            **{"HOME": str(home), "PATH": PATH, "SSH_AUTH_SOCK": str(home / ".ssh/rc")},
            "TMUX_TMPDIR": str(shared()),
            **{"GIT_DIR": str(home / "git"), "GIT_CONFIG_COUNT": "broken", "NO_COLOR": "1"},
            **{"BASH_ENV": str(home / ".bashrc"), "BOXSTRAP_SSH_CONFIG": str(home / ".ssh/config")},
        }
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_NOSYSTEM"):
            self.env.pop(name, None)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return captured(
            ["unshare", "-m", "/bin/dash", "-c", _INSIDE, "sh", *command],
            cwd=HERE,
            env=self.env,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=240,
        )

    def listing(self) -> dict[str, bytes]:
        files = (path for path in self.home.rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in files if ".cache" not in path.parts}


@pytest.fixture
def full(tmp_path: Path) -> Full:
    return Full(tmp_path / "full")


def test_the_test_suite_neither_reads_nor_writes_the_users_home(full: Full) -> None:
    before = full.listing()
    done = full.run(
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        "tests/unit/link/test_login.py::test_a_login_tries_no_agent_key_with_identity_agent_none_and_names_a_dead_agent",
        "tests/unit/link/test_exchange.py::test_a_command_on_host_local_starts_in_the_home_folder",
        "tests/unit/tasks/test_programs.py::test_init_writes_a_valid_profile_and_never_overwrites_one",
        "tests/unit/runs/test_editors.py",
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    assert full.listing() == before


def test_the_demo_touches_only_its_own_folders_in_the_users_home(full: Full) -> None:
    before = full.listing()
    done = full.run(str(BIN / "boxstrap"), "demo")
    assert done.returncode == 0, done.stdout + done.stderr
    after = full.listing()
    own = ("boxstrap/demo/", "boxstrap/boxes/local/", "boxstrap/repositories/", ".boxstrap")
    assert [name for name in after if name not in before and not any(o in name for o in own)] == []
    assert {name: after[name] for name in before} == before
