"""The program of a door, on the git host of a commit, as a ref of its own.

It is one commit without history, with one file, and the same one for everybody who has this
version: its author and time are fixed. Nothing of a repository is read for it or changed by it.
Some hosts take only branches and tags from a push; there it is a branch.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from bootstrap.errors import ProfileError, UsageError
from bootstrap.paths import temporary_dir
from bootstrap.repo.git import Folders, run_git
from bootstrap.repo.mirror import git_credentials
from bootstrap.repo.urls import without_user_info

_AUTHOR = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (
        *(("NAME", "boxstrap"), ("EMAIL", "boxstrap@localhost")),
        ("DATE", "1700000000 +0000"),
    )
}


def find_program(url: str, program: str) -> str:
    """Return the ref under which the host has it; "" if it hasn't, or can't be asked."""
    refs = refs_of(program)
    try:
        said = git_credentials(
            url, "ls-remote", "-q", "--end-of-options", without_user_info(url), *refs
        )
    except ProfileError:
        return ""
    there = {line.partition("\t")[2] for line in said.splitlines()}
    return next((ref for ref in refs if ref in there), "")


def push_program(url: str, program: str) -> str:
    """Push it, and return its ref there. Raises UsageError if the host takes none."""
    with tempfile.TemporaryDirectory(prefix="boxstrap-", dir=temporary_dir()) as folder:
        store = Folders(Path(folder))
        run_git(store, "init", "--bare", "--quiet", "--template=")
        blob = _made(store, "hash-object", "-w", "--stdin", stdin=program)
        tree = _made(store, "mktree", stdin=f"100644 blob {blob}\tprogram.sh\n")
        commit = _made(store, "commit-tree", "-m", "The program of boxstrap", tree)
        for ref in refs_of(program):
            asked = ("push", "--quiet", "--end-of-options", without_user_info(url))
            try:
                git_credentials(url, *asked, f"{commit}:{ref}", folders=store)
            except ProfileError as error:
                refused = error
                continue
            return ref
    raise UsageError(
        f"the git host takes no program of boxstrap: {refused.what}",
        hint="Let the box fetch it from another address: boxstrap oneliner --url https://…",
    )


def refs_of(program: str) -> tuple[str, str]:
    """Return the ref that it gets, and the one where a host takes only branches and tags."""
    name = f"boxstrap/{hashlib.sha256(program.encode()).hexdigest()[:16]}"
    return f"refs/{name}", f"refs/heads/{name}"


def _made(store: Folders, *words: str, stdin: str = "") -> str:
    return run_git(store, *words, stdin=stdin.encode(), env=_AUTHOR).decode().strip()
