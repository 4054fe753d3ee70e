"""The environment of programs that tests start: only PATH is taken from the real user."""

import atexit
import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import MutableMapping
from pathlib import Path

BIN = Path(sys.executable).parent
HERE = Path(__file__).resolve().parents[1]
PATH = os.environ["PATH"]
SSH = shutil.which("ssh")

_SETTINGS = ("BASH_ENV", "CDPATH", "COLUMNS", "EDITOR", "ENV", "LINES", "NO_COLOR", "VISUAL")
_FAMILIES = ("BOXSTRAP_", "FORCE_", "GIT_", "INVOKE_", "PYTHON", "SSH_", "TMUX", "VSCODE_", "XDG_")


def forget_settings(environ: MutableMapping[str, str], *, kept: str) -> None:
    """Remove the real user's settings; names that start with `kept` are the tests' own."""
    for name in list(environ):
        if name in _SETTINGS or (name.startswith(_FAMILIES) and not name.startswith(kept)):
            del environ[name]


def plain_environment(home: Path) -> dict[str, str]:
    """Return a program's environment: this machine's PATH, its own home, no user settings."""
    return {
        "PATH": f"{own_ssh(home)}:{BIN}:{PATH}",
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "LANG": "C.UTF-8",
        "BOXSTRAP_KEEP_OPEN": "0",  # nothing stays; but see `keeps_open` in conftest.py
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TEMPLATE_DIR": str(shared() / "git"),
        "TMUX_TMPDIR": str(shared()),  # keeps tests' sessions apart from the real user's
        "PYTHONPATH": str(HERE),  # test the checkout that these tests are in
        **measuring(),
    }


def measuring() -> dict[str, str]:
    """Return the variables by which `make coverage` measures programs that tests start."""
    return {name: text for name, text in os.environ.items() if name.startswith("COVERAGE_")}


def own_ssh(home: Path) -> Path:
    """Return a folder with an `ssh` that uses the files in `home`, for the front of a PATH.

    OpenSSH takes the home from the account, whatever $HOME says: it would use the
    configuration, keys and known hosts of the real user.
    """
    folder = home.with_name(f"{home.name}-ssh")
    if SSH and not folder.is_symlink():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.symlink_to(shared() / "ssh")
    return folder


def forget_own_ssh(home: Path) -> None:
    """Remove what `own_ssh` made there."""
    for path in home.parent.glob(f"{home.name}-ssh*"):
        path.unlink()


_SSH = """\
#!/bin/sh
theirs=${0%-ssh/ssh}/.ssh config=${0%/ssh}.config
[ -e "$config" ] || {
  cat >"$config.$$" <<END
Include "$theirs/config"
Host *
  IdentityFile "$theirs/id_ed25519"
  IdentityFile "$theirs/id_ecdsa"
  IdentityFile "$theirs/id_rsa"
  UserKnownHostsFile "$theirs/known_hosts"
  GlobalKnownHostsFile none
END
  mv "$config.$$" "$config"
}
exec @SSH@ -F "$config" "$@"
"""


_MAKING = threading.Lock()


def shared() -> Path:
    """Return the folder that all homes share: `ssh`, tmux's sockets and git's template.

    The `ssh` writes the configuration next to its home when it runs. The template has no sample
    hooks: they took two thirds of the time to make a test's repository.
    """
    with _MAKING:  # a test with several threads shares it too
        return _made()


def _forget(folder: Path) -> None:
    """Remove it, and end the tmux servers of tests whose box was this machine."""
    for socket in folder.glob("tmux-*/*"):
        subprocess.run(["tmux", "-S", socket, "kill-server"], capture_output=True, check=False)
    shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _made() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="boxstrap-shared-"))
    atexit.register(_forget, folder)
    for name in ("ssh", "git/hooks", "git/info"):
        (folder / name).mkdir(parents=True)
    program = folder / "ssh/ssh"
    program.write_text(_SSH.replace("@SSH@", shlex.quote(str(SSH))))
    program.chmod(0o755)
    return folder
