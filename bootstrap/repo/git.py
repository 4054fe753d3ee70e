"""Asking git about the user's repository, without changing anything in it.

No hook, no monitor, no maintenance, no prompt and no lock taken for convenience;
messages in English, since some of them are recognised. Only filters that the user's
own attributes name still run, where git must compare a file's content.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..errors import BoxstrapError, UsageError
from .names import shown

_OPTIONS = (
    "--no-pager",
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.splitIndex=false"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
)

_SET = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",  # the box gets the objects as they are
    "LC_ALL": "C",
}

# What points git at another repository than the folder it is asked about (set while a
# hook or an alias runs us), and what would mix a trace into the messages we read.
_UNSET = re.compile(
    r"GIT_(DIR|WORK_TREE|COMMON_DIR|INDEX_FILE|OBJECT_DIRECTORY|ALTERNATE_OBJECT_DIRECTORIES"
    r"|NAMESPACE|PREFIX|SHALLOW_FILE|GRAFT_FILE|REPLACE_REF_BASE|QUARANTINE_PATH"
    r"|\w+_PATHSPECS|EXTERNAL_DIFF|DIFF_OPTS|TRACE\w*)"
)

_DUBIOUS = "dubious ownership"


class GitError(Exception):
    """git ended non-zero; `said` is what it wrote to its standard error."""

    def __init__(self, returncode: int, said: str) -> None:
        self.returncode = returncode
        self.said = said
        super().__init__(said)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of every git call."""
    kept = {name: value for name, value in os.environ.items() if not _UNSET.fullmatch(name)}
    return {**kept, **_SET, **(extra or {})}


def run(
    folder: Path,
    *arguments: str,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    ok: Sequence[int] = (0,),
) -> bytes:
    """What `git <arguments>` prints in `folder`.

    Raises GitError where it ends with another code than those of `ok`, UsageError
    where git is missing or refuses a repository that belongs to someone else.
    """
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *_OPTIONS, *arguments],
            input=stdin,
            capture_output=True,
            env=environment(env),
            check=False,
        )
    except FileNotFoundError:
        raise not_installed() from None
    if done.returncode in ok:
        return done.stdout
    said = done.stderr.decode("utf-8", "replace").strip()
    if _DUBIOUS in said:
        raise not_yours(folder)
    raise GitError(done.returncode, said)


def start(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """`git <arguments>` started in `folder`, its three streams piped."""
    try:
        return subprocess.Popen(
            ["git", "-C", str(folder), *_OPTIONS, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(env),
        )
    except FileNotFoundError:
        raise not_installed() from None


def not_installed() -> UsageError:
    """The error where this machine has no git."""
    return UsageError("git is not installed on this machine.", next_="Install it and run again.")


def not_yours(folder: Path) -> UsageError:
    """The error where git refuses a repository whose files belong to another user."""
    return UsageError(
        "git refuses this repository, since its files belong to another user.",
        where=shown(str(folder)),
        next_=f"If you trust it: git config --global --add safe.directory {shown(str(folder))}",
    )


def broken(folder: Path, failure: GitError) -> BoxstrapError:
    """The error for a failure that no state of a sound repository explains."""
    lines = [shown(line) for line in failure.said.splitlines() if line.strip()]
    return BoxstrapError(
        f"git failed: {lines[-1] if lines else f'exit code {failure.returncode}'}",
        where=shown(str(folder)),
        next_="`git fsck` in that folder says whether the repository is damaged.",
    )
