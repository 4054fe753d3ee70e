"""Parts of a mirror as one file that `git fetch` reads (git-bundle(1)): a dependency that is sent.

With all of their history, and the tags in it: a package may take its version from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError
from .git import FRUGAL, Folders, GitError, broken, run
from .names import decoded, shown
from .place import head

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


@dataclass
class Wanted:
    """What is sent of a mirror: names of refs, and the commits that they are."""

    refs: dict[str, str] = field(default_factory=dict)
    resolved: dict[str, str] = field(default_factory=dict)
    """The commit of each ref that was asked for."""
    head: str = "-"
    """The ref at which a clone begins."""
    with_submodules: bool = False

    @property
    def object_format(self) -> str:
        """How the repository names its objects."""
        return "sha256" if any(len(each) == 64 for each in self.refs.values()) else "sha1"


def find_wanted(mirror: Path, asked: Iterable[str]) -> Wanted:
    """Names for all that was asked for: commits, branches, tags, "" for the default branch.

    Raises UsageError where there is no such thing, BoxstrapError where git fails.
    """
    try:
        return _find_wanted(mirror, asked)
    except GitError as failure:
        raise broken(mirror, failure) from failure


def _find_wanted(mirror: Path, asked: Iterable[str]) -> Wanted:
    wanted, folders = Wanted(), Folders(mirror)
    for ref in asked:
        names = _names(mirror, ref)
        commit = _commit(mirror, names[0] if names else ref or "HEAD")
        if not commit:
            raise UsageError(f"it has no branch, tag or commit {shown(ref) or 'to begin with'}.")
        if not names:
            names = [f"refs/boxstrap/{commit}"]
            run(folders, "update-ref", names[0], commit)
        wanted.resolved[ref] = commit
        if not ref or wanted.head == "-":
            wanted.head = names[0]
        tags = run(
            folders, "for-each-ref", "--format=%(refname)", f"--merged={commit}", "refs/tags"
        )
        names += decoded(tags).split()
        wanted.refs |= {name: _id(folders, name) for name in names}
        wanted.with_submodules |= bool(run(folders, "ls-tree", commit, ".gitmodules"))
    return wanted


def write_bundle(mirror: Path, wanted: Wanted, have: Sequence[str], file: Path) -> None:
    """Write it, without what follows from the objects `have`. Raises BoxstrapError."""
    here = (each for each in have if _COMMIT.fullmatch(each) and _commit(mirror, each))
    known = [f"^{each}" for each in here]
    try:
        try:
            _write(mirror, [*wanted.refs, *known], file)
        except GitError:
            if not known:
                raise
            _write(mirror, [*wanted.refs], file)  # git refuses one in which nothing is new
    except GitError as failure:
        raise broken(mirror, failure) from failure


def _write(mirror: Path, revisions: Sequence[str], file: Path) -> None:
    lines = "".join(f"{each}\n" for each in revisions).encode("utf-8", "surrogateescape")
    make = ("bundle", "create", "--quiet", str(file), "--stdin")
    run(Folders(mirror), *FRUGAL, *make, stdin=lines)


def _names(mirror: Path, ref: str) -> list[str]:
    """The refs of the mirror that are meant; none where it is a commit."""
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
        return run(folders, *ask).decode().strip()
    except GitError:
        return ""
