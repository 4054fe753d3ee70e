"""How the files of a snapshot differ from its commit.

Find files with a filter (such as git-crypt's) that are unchanged since git wrote them.

boxstrap runs no filter, so git compares such a file on disk with the committed bytes and calls it
modified. But git's index has the size and times of the file that git wrote.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable
from typing import NamedTuple

from bootstrap.paths import PROFILE
from bootstrap.repo.git import Folders, GitError, run_git
from bootstrap.repo.local import LocalRepository
from bootstrap.repo.names import decoded
from bootstrap.repo.snapshot_store import SnapshotStore

_NONE = (b"unspecified", b"unset", b"set")

# An entry of `git ls-files --debug -z`: the name, then lines with the file's lstat(2) values.
_ENTRY = re.compile(
    rb"([^\0]+)\0  ctime: (\d+):(\d+)\n  mtime: (\d+):(\d+)\n"
    rb"  dev: .*\n  uid: .*\n  size: (\d+)\t.*\n"
)


def as_git_wrote_them(here: LocalRepository, paths: set[bytes]) -> set[bytes]:
    """Return those of `paths` that have a filter, and still the size and times that git recorded.

    Raises GitError.
    """
    filtered = _filtered(here, paths) if paths else set[bytes]()
    if not filtered:
        return set()
    listed = run_git(here.folders, "ls-files", "--debug", "-z")
    return {
        path
        for path, *numbers in _ENTRY.findall(listed)
        if path in filtered and _is_as_written(here, path, [int(number) for number in numbers])
    }


def _filtered(here: LocalRepository, paths: set[bytes]) -> set[bytes]:
    view = Folders(here.repository.view.with_filters, here.root)
    ask = ("check-attr", "--stdin", "-z", "filter")
    fields = run_git(view, *ask, stdin=b"\0".join(paths)).split(b"\0")
    rows = zip(fields[::3], fields[2::3], strict=False)
    return {path for path, value in rows if value not in _NONE}


def _is_as_written(here: LocalRepository, path: bytes, numbers: list[int]) -> bool:
    changed_s, changed_ns, written_s, written_ns, size = numbers
    try:
        found = (here.root / decoded(path)).lstat()
    except OSError:
        return False
    times = (changed_s * 10**9 + changed_ns, written_s * 10**9 + written_ns)
    return (found.st_ctime_ns, found.st_mtime_ns, found.st_size) == (*times, size)


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
    printed = run_git(folders, "diff-tree", "-r", "-z", "--raw", "--no-renames", before, after)
    fields = printed.split(b"\0")
    rows = zip(fields[::2], fields[1::2], strict=False)
    return [Change._make([*about[1:].split(b" "), path]) for about, path in rows if about]


def content_of(folders: Folders, tree: str) -> str:
    """Return a digest of the tree without the repository's profile, as the box computes it too.

    What the profile says reaches the box in the script. Raises GitError.
    """
    listed = run_git(folders, "-c", "core.quotePath=true", "ls-tree", tree) or b"\n"  # as in shell
    own = f"\t{PROFILE}\n".encode()
    lines = (line for line in listed.splitlines(keepends=True) if not line.endswith(own))
    return hashlib.sha256(b"".join(lines)).hexdigest()


def count_changes(
    here: LocalRepository, changes: Iterable[Change], store: SnapshotStore
) -> ChangeCount:
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
        run_git(here.folders, "update-index", "-z", "--index-info", stdin=b"".join(lines), env=own)
        return set(run_git(here.folders, *compare, env=own).split(b"\0"))
    except GitError:  # e.g. an encoding that this machine lacks; only the count is affected
        return {change.path for change in changes}
