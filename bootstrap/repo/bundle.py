"""Write parts of a mirror as a git bundle (git-bundle(1)), to send a dependency to a box.

It has the full history with its tags: a package may derive its version from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bootstrap.errors import UsageError
from bootstrap.repo.git import FRUGAL, Folders, GitError, git_error, run_git
from bootstrap.repo.names import decoded, shown
from bootstrap.repo.place import head

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass
class Wanted:
    """What to send of a mirror: refs by name, with their object ids."""

    refs: dict[str, str] = field(default_factory=dict)
    resolved: dict[str, str] = field(default_factory=dict)
    """The commit of each requested ref."""
    head: str = "-"
    """The ref that a clone checks out."""
    with_submodules: bool = False

    @property
    def object_format(self) -> str:
        """The object format: `sha1` or `sha256`."""
        return "sha256" if any(len(each) == 64 for each in self.refs.values()) else "sha1"


def find_wanted(mirror: Path, asked: Iterable[str]) -> Wanted:
    """Resolve all that was asked for: commits, branches, tags, "" for the default branch.

    Raises UsageError if one does not exist, BoxstrapError if git fails.
    """
    try:
        return _find_wanted(mirror, asked)
    except GitError as failure:
        raise git_error(mirror, failure) from failure


def _find_wanted(mirror: Path, asked: Iterable[str]) -> Wanted:
    wanted, folders = Wanted(), Folders(mirror)
    for ref in asked:
        names = _names(mirror, ref)
        commit = _commit(mirror, names[0] if names else ref or "HEAD")
        if not commit:
            raise UsageError(f"it has no branch, tag or commit {shown(ref) or 'to begin with'}.")
        if not names:
            names = [f"refs/boxstrap/{commit}"]
            run_git(folders, "update-ref", names[0], commit)
        wanted.resolved[ref] = commit
        if not ref or wanted.head == "-":
            wanted.head = names[0]
        tags = run_git(
            folders, "for-each-ref", "--format=%(refname)", f"--merged={commit}", "refs/tags"
        )
        names += decoded(tags).split()
        wanted.refs |= {name: _id(folders, name) for name in names}
        wanted.with_submodules |= bool(run_git(folders, "ls-tree", commit, ".gitmodules"))
    return wanted


def write_bundle(mirror: Path, wanted: Wanted, have: Sequence[str], file: Path) -> None:
    """Write the bundle without what is reachable from `have`. Raises BoxstrapError."""
    here = (each for each in have if _COMMIT.fullmatch(each) and _commit(mirror, each))
    known = [f"^{each}" for each in here]
    try:
        try:
            _write(mirror, [*wanted.refs, *known], file)
        except GitError:
            if not known:
                raise
            _write(mirror, [*wanted.refs], file)  # git refuses an empty bundle
    except GitError as failure:
        raise git_error(mirror, failure) from failure


def _write(mirror: Path, revisions: Sequence[str], file: Path) -> None:
    lines = "".join(f"{each}\n" for each in revisions).encode("utf-8", "surrogateescape")
    make = ("bundle", "create", "--quiet", str(file), "--stdin")
    run_git(Folders(mirror), *FRUGAL, *make, stdin=lines)


def _names(mirror: Path, ref: str) -> list[str]:
    """Return the refs of the mirror that `ref` may name; none if it is a commit."""
    if not ref:
        at = head(mirror) or ""
        return [at.removeprefix("ref: ").strip()] if at.startswith("ref: ") else []
    named = [f"refs/heads/{ref}", f"refs/tags/{ref}"] if not ref.startswith("refs/") else [ref]
    return [name for name in named if _id(Folders(mirror), name)]


def _commit(mirror: Path, name: str) -> str:
    return _id(Folders(mirror), f"{name}^{{commit}}")


def _id(folders: Folders, name: str) -> str:
    ask = ("rev-parse", "--quiet", "--verify", "--end-of-options", name)
    try:
        return run_git(folders, *ask).decode().strip()
    except GitError:
        return ""
