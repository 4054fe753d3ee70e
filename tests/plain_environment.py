"""The environment of the programs that tests start: nothing of whoever runs them but the PATH."""

from __future__ import annotations

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
    """Take out what whoever runs this set for their own programs; `kept` begins what is ours."""
    for name in list(environ):
        if name in _SETTINGS or (name.startswith(_FAMILIES) and not name.startswith(kept)):
            del environ[name]


def plain_environment(home: Path) -> dict[str, str]:
    """What a program sees: this machine's PATH, a home of its own, and nothing of ours."""
    return {
        "PATH": f"{own_ssh(home)}:{BIN}:{PATH}",
        "HOME": str(home),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "LANG": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TEMPLATE_DIR": str(shared() / "git"),
        "TMUX_TMPDIR": str(shared()),  # no session of a test's meets those of whoever runs it
        "PYTHONPATH": str(HERE),  # what is tested is the checkout that these tests are of
    }


def own_ssh(home: Path) -> Path:
    """A folder with an `ssh` whose files lie in `home`, for the front of a PATH.

    OpenSSH asks the account where home is, whatever $HOME says: it would take the
    configuration, the keys and the known hosts of whoever runs the tests.
    """
    folder = home.with_name(f"{home.name}-ssh")
    if SSH and not folder.is_symlink():
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.symlink_to(shared() / "ssh")
    return folder


def forget_own_ssh(home: Path) -> None:
    """Take away what `own_ssh` made there."""
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
    """What thousands of homes share: `ssh`, tmux's server, and what `git init` begins with.

    That `ssh` makes the configuration of the home beside it when it runs. Git's own sample of
    each hook took two thirds of the time that a test's repository takes.
    """
    with _MAKING:  # the users of a test that does many things at once share it, too
        return _made()


def _forget(folder: Path) -> None:
    """Take it away, and end the tmux server of those whose box was this machine."""
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
