"""The only module that runs git on this machine.

git is given the repository to read, and never searches for one. It sees only the user's
own configuration and what `view` lets through of a repository's. So it runs no hook,
filter, monitor or helper that a repository names, and reading a repository connects to
nothing: an object that isn't local is missing. git does no maintenance, shows no prompt
and takes no optional lock; its messages are in English, since some are recognised.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bootstrap.errors import BoxstrapError, UsageError, write_error
from bootstrap.repo.names import shown

_OPTIONS = (
    "--no-pager",
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.splitIndex=false"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "submodule.recurse=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    # A second line of defence, which older gits don't have.
    *("-c", "safe.bareRepository=explicit"),
)

FRUGAL = (
    *("-c", "core.packedGitLimit=8m"),
    *("-c", "core.packedGitWindowSize=1m"),
    *("-c", "pack.deltaCacheSize=8m"),
)
"""For packing: by default git maps whole packs, and so uses as much memory as it sends."""

_SET = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",  # the box gets the objects as they are
    "GIT_ALLOW_PROTOCOL": "",  # none: reading connects to nothing
    "GIT_NO_LAZY_FETCH": "1",  # a second defence; older gits lack it
    "LC_ALL": "C",
}

# The `GIT_*` variables that are kept: where the user's configuration is, and which
# certificates they trust. Others may point git at another repository, or name a program.
_KEPT = re.compile(r"GIT_(CONFIG_(GLOBAL|SYSTEM|NOSYSTEM)|SSL_(CAINFO|CAPATH|CERT|KEY|NO_VERIFY))")


_ROOM = 64 * 1024
"""Bytes: a disk with less free space counts as full."""

_BOUNDED = 'ulimit -v "$1" 2>/dev/null; shift; exec "$@"'


class GitError(Exception):
    """git exited non-zero; `said` is its standard error."""

    def __init__(self, returncode: int, said: str) -> None:
        self.returncode = returncode
        self.said = said
        super().__init__(said)


@dataclass(frozen=True)
class Folders:
    """The repository that git runs on: its git folder, and its working tree if it has one."""

    git_dir: Path
    work_tree: Path | None = None

    def options(self) -> tuple[str, ...]:
        """Return the options that point git at this repository only."""
        if self.work_tree is None:
            return ("--git-dir", str(self.git_dir))
        tree = str(self.work_tree)
        return ("-C", tree, "--git-dir", str(self.git_dir), "--work-tree", tree)


AT_ONCE_S = 20
"""Seconds for a quick read: git would wait forever for a pipe or a lost disk."""

NOWHERE = Folders(Path(os.devnull))
"""No repository: for questions about the user's configuration, or to a host."""


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a git call: of `GIT_*` only what is listed here, and `extra`."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or _KEPT.fullmatch(name)
    }
    return {**kept, **_SET, **(extra or {})}


def run_git(
    folders: Folders,
    *arguments: str,
    stdin: bytes | None = b"",
    env: Mapping[str, str] | None = None,
    ok: Sequence[int] = (0,),
    timeout: float | None = None,
) -> bytes:
    """Run `git <arguments>` on the repository at `folders` and return what it prints.

    Raises GitError if its exit code is not in `ok`, or after `timeout` seconds, UsageError if
    git is not installed.
    """
    try:
        done = subprocess.run(
            ["git", *folders.options(), *_OPTIONS, *arguments],
            input=stdin,
            capture_output=True,
            env=environment(env),
            check=False,
            timeout=timeout,
        )
    except FileNotFoundError:
        raise not_installed() from None
    except subprocess.TimeoutExpired:
        raise GitError(124, f"no answer within {timeout} s") from None
    if done.returncode in ok:
        return done.stdout
    raise GitError(done.returncode, done.stderr.decode("utf-8", "replace").strip())


def start_git(
    folders: Folders,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    most_memory_kib: int = 0,
) -> subprocess.Popen[bytes]:
    """Start `git <arguments>` on the repository at `folders`, with its three streams piped.

    `most_memory_kib` limits its address space, if the system supports that.
    """
    bounded = ("sh", "-c", _BOUNDED, "sh", str(most_memory_kib)) if most_memory_kib else ()
    try:
        return subprocess.Popen(
            [*bounded, "git", *folders.options(), *_OPTIONS, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(env),
        )
    except FileNotFoundError:
        raise not_installed() from None


def not_installed() -> UsageError:
    """Return the error for a machine without git."""
    return UsageError("git is not installed on this machine.", hint="Install it and run again.")


def disk_error(written: Path, failure: GitError) -> BoxstrapError | None:
    """Return the error if git failed because `written` is full, over quota or read-only."""
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):  # LC_ALL=C: git prints this text
        # For a lock file that it can't write, git doesn't say why.
        worded = code == errno.ENOSPC and "couldn't write '" in failure.said and _is_full(written)
        if worded or os.strerror(code) in failure.said:
            return write_error(shown(str(written)), OSError(code, os.strerror(code)))
    return None


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _ROOM
    except OSError:
        return False


def git_error(folder: Path, failure: GitError, written: Path | None = None) -> BoxstrapError:
    """Return the error for a failure that a healthy repository can't cause.

    `written` is where git writes, if that is another folder.
    """
    amiss = disk_error(written or folder, failure)
    if amiss:
        return amiss
    lines = [shown(line) for line in failure.said.splitlines() if line.strip()]
    return BoxstrapError(
        f"git failed: {lines[-1] if lines else f'exit code {failure.returncode}'}",
        where=shown(str(folder)),
        hint="`git fsck` in that folder says whether the repository is damaged.",
    )
