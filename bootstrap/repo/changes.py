"""How the files of a snapshot differ from its commit."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import NamedTuple

from ..paths import PROFILE
from .filters import as_git_wrote_them
from .git import Folders, GitError, run
from .here import LocalRepository
from .snapshot_store import SnapshotStore

SUBMODULE = b"160000"


class ChangeCount(NamedTuple):
    """How many files differ from the commit, as git itself compares them."""

    modified: int = 0
    new: int = 0
    deleted: int = 0

    def __bool__(self) -> bool:
        return any(self)

    def __str__(self) -> str:
        kinds = ((self.modified, "modified"), (self.new, "new"), (self.deleted, "deleted"))
        return ", ".join(f"{number} {kind}" for number, kind in kinds if number)


class Change(NamedTuple):
    """A file that differs between two trees, as `git diff-tree --raw` prints it."""

    mode_before: bytes
    mode: bytes
    blob_before: bytes
    blob: bytes
    status: bytes
    path: bytes


def changes_between(folders: Folders, before: str, after: str) -> list[Change]:
    """List the files that differ between two trees, byte for byte. Raises GitError."""
    if before == after:
        return []
    printed = run(folders, "diff-tree", "-r", "-z", "--raw", "--no-renames", before, after)
    fields = printed.split(b"\0")
    rows = zip(fields[::2], fields[1::2], strict=False)
    return [Change._make([*about[1:].split(b" "), path]) for about, path in rows if about]


def content_of(folders: Folders, tree: str) -> str:
    """Return a digest of the tree without the repository's profile, as the box computes it too.

    What the profile says reaches the box in the script. Raises GitError.
    """
    listed = run(folders, "-c", "core.quotePath=true", "ls-tree", tree) or b"\n"  # as in shell
    own = f"\t{PROFILE}\n".encode()
    lines = (line for line in listed.splitlines(keepends=True) if not line.endswith(own))
    return hashlib.sha256(b"".join(lines)).hexdigest()


def count(here: LocalRepository, changes: Iterable[Change], store: SnapshotStore) -> ChangeCount:
    """Count the changes as git compares files: converted line endings, say, are no change.

    Raises GitError.
    """
    of = {b"A": set[bytes](), b"D": set[bytes](), b"M": set[bytes](), b"T": set[bytes]()}
    modified, changes = [], list(changes)
    for change in changes:
        if SUBMODULE in (change.mode, change.mode_before):
            inside = change.path + b"/"  # the submodule is a folder of files now
            if change.status == b"D" and not any(e.path.startswith(inside) for e in changes):
                of[b"D"].add(change.path)
            continue
        of[change.status].add(change.path)
        if change.status == b"M":
            modified.append(change)
    alike = {change.path for change in modified} - _differing(here, modified, store)
    alike |= as_git_wrote_them(here, {change.path for change in modified} - alike)
    return ChangeCount(len(of[b"M"] - alike) + len(of[b"T"]), len(of[b"A"]), len(of[b"D"]))


def _differing(
    here: LocalRepository, changes: Collection[Change], store: SnapshotStore
) -> set[bytes]:
    """Return the files that git would call modified, compared through a separate index."""
    if not changes:
        return set()
    index = store.git_dir / "compared"
    index.unlink(missing_ok=True)
    own = {"GIT_INDEX_FILE": str(index), **store.objects_of_all()}
    lines = (b"%s %s\t%s\0" % (each.mode_before, each.blob_before, each.path) for each in changes)
    compare = ("diff", "--name-only", "-z", "--ignore-submodules=all")
    try:
        run(here.folders, "update-index", "-z", "--index-info", stdin=b"".join(lines), env=own)
        return set(run(here.folders, *compare, env=own).split(b"\0"))
    except GitError:  # e.g. an encoding that this machine lacks; only the count is affected
        return {change.path for change in changes}
