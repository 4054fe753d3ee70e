"""What would stay behind if only the commit travelled."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..paths import temporary_dir
from .filters import as_git_wrote_them
from .git import Folders, GitError, broken, run
from .here import LocalRepository
from .names import decoded, shown

_SUBMODULE = "160000"

# The fields before the path in a line of `git status --porcelain=v2` (git-status(1)).
_FIELDS_BEFORE_PATH = {"1": 8, "u": 10, "?": 1}
_SUBMODULE_FIELD = 2


@dataclass(frozen=True)
class Changes:
    """Paths from the top of the repository, sorted; bytes that aren't UTF-8 are surrogates.

    `modified`: tracked files whose state, staged or not, the commit doesn't have.
    `untracked`: files and whole folders (with a slash) that are neither tracked nor ignored.
    `submodules`: repositories inside this one, of which a commit holds the id alone.
    `lfs`: files of which a commit holds a pointer alone.
    """

    modified: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()
    lfs: tuple[str, ...] = ()

    def without(self, path: str) -> Changes:
        """The same but for the file at `path`."""
        modified, untracked = (
            tuple(name for name in names if name != path)
            for names in (self.modified, self.untracked)
        )
        return replace(self, modified=modified, untracked=untracked)

    def __bool__(self) -> bool:
        return any(names for _, names in self._kinds())

    def lines(self, limit: int = 10) -> list[str]:
        """A line for each path, at most `limit` of a kind, and one for the rest of it."""
        listed = []
        for kind, names in self._kinds():
            listed += [f"{kind:<10} {shown(name)}" for name in names[:limit]]
            if len(names) > limit:
                listed.append(f"{kind:<10} and {len(names) - limit} more")
        return listed

    def as_dict(self) -> dict[str, list[str]]:
        """What `--json` prints, names as they may be shown."""
        return {kind: [shown(name) for name in names] for kind, names in self._kinds()}

    def _kinds(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "modified", self.modified
        yield "untracked", self.untracked
        yield "submodules", self.submodules
        yield "lfs", self.lfs


def left_behind(here: LocalRepository) -> Changes:
    """What the box would not get of the work around `here`.

    Submodules and LFS files are those of `here.commit`. Changes are those of the working
    tree against the commit it stands on, also where another ref was asked for: the user
    chose that commit, but may not know that the work they see is not in it.

    Nothing is written to the repository, and no filter runs: a file of LFS is listed as
    such, and one with another filter counts as changed unless its size and time say that it
    is the one that git wrote. git's own conversions (line ends, encodings) apply.
    Raises BoxstrapError where git fails.
    """
    try:
        submodules, paths, attribute_blobs = _listing(here)
        lfs = _lfs(here, paths) if _may_use_lfs(here, attribute_blobs) else set()
        if here.bare:
            return Changes(submodules=_sorted(submodules), lfs=_sorted(lfs))
        modified, untracked, moved = _status(here)
        modified = (modified | _hidden(here)) - lfs
    except GitError as failure:
        raise broken(here.root, failure) from failure
    return Changes(
        modified=_sorted(modified),
        untracked=_sorted(untracked),
        submodules=_sorted(submodules | moved),
        lfs=_sorted(lfs),
    )


def _sorted(names: set[bytes]) -> tuple[str, ...]:
    return tuple(decoded(name) for name in sorted(names))


def _entries(printed: bytes) -> list[bytes]:
    return [entry for entry in printed.split(b"\0") if entry]


def _status(here: LocalRepository) -> tuple[set[bytes], set[bytes], set[bytes]]:
    """Modified files, untracked ones, and submodules that were added or moved."""
    printed = run(
        here.folders,
        *("status", "--porcelain=v2", "-z", "--no-renames"),
        *("--untracked-files=normal", "--ignore-submodules=dirty"),
    )
    modified, unstaged = set[bytes](), set[bytes]()
    untracked, moved = set[bytes](), set[bytes]()
    for entry in _entries(printed):
        before = _FIELDS_BEFORE_PATH.get(entry[:1].decode())
        if before is None:  # a header
            continue
        *fields, path = entry.split(b" ", before)
        if entry[:1] == b"?":
            untracked.add(path)
        elif fields[_SUBMODULE_FIELD].startswith(b"S"):
            moved.add(path)
        else:
            (unstaged if fields[1] == b".M" else modified).add(path)
    modified |= unstaged - as_git_wrote_them(here, unstaged)
    return modified, untracked, moved


def _hidden(here: LocalRepository) -> set[bytes]:
    """Changed files that git was told not to look at.

    `update-index --assume-unchanged` and `--skip-worktree` hide changes from
    `git status`. They are put, without those flags, into an index of their own, which is
    compared with the working tree. A skipped file that is absent is a sparse checkout.
    """
    hidden = []
    for entry in _entries(run(here.folders, "ls-files", "-v", "--stage", "-z")):
        tag, _, rest = entry.partition(b" ")
        path = rest.partition(b"\t")[2]
        if tag.islower() or (tag == b"S" and _exists(here, path)):
            hidden.append(rest)
    if not hidden:
        return set()
    with tempfile.TemporaryDirectory(prefix="boxstrap-", dir=temporary_dir()) as folder:
        own = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        listed = b"".join(entry + b"\0" for entry in hidden)
        run(here.folders, "update-index", "-z", "--index-info", stdin=listed, env=own)
        compare = ("diff", "--name-only", "-z", "--ignore-submodules=all")
        return set(_entries(run(here.folders, *compare, env=own)))


def _exists(here: LocalRepository, path: bytes) -> bool:
    place = here.root / decoded(path)
    return place.exists() or place.is_symlink()


def _listing(here: LocalRepository) -> tuple[set[bytes], list[bytes], list[bytes]]:
    """Of the commit: its submodules, its files, and the ids of its .gitattributes."""
    submodules, paths, attribute_blobs = set[bytes](), list[bytes](), list[bytes]()
    for entry in _entries(run(here.folders, "ls-tree", "-r", "-z", "--full-tree", here.commit)):
        mode_type_id, _, path = entry.partition(b"\t")
        mode, _, blob = mode_type_id.split(b" ")
        if mode == _SUBMODULE.encode():
            submodules.add(path)
            continue
        paths.append(path)
        if path.rpartition(b"/")[2] == b".gitattributes":
            attribute_blobs.append(blob)
    return submodules, paths, attribute_blobs


def _may_use_lfs(here: LocalRepository, attribute_blobs: list[bytes]) -> bool:
    """Whether an attributes file of the commit, or of this clone, mentions lfs at all."""
    own = here.git_dir / "info" / "attributes"
    if own.is_file() and b"lfs" in own.read_bytes():
        return True
    if not attribute_blobs:
        return False
    return b"lfs" in run(here.folders, "cat-file", "--batch", stdin=b"\n".join(attribute_blobs))


def _lfs(here: LocalRepository, paths: list[bytes]) -> set[bytes]:
    """The files with the attribute `filter=lfs`, as the commit's own attributes say."""
    with tempfile.TemporaryDirectory(prefix="boxstrap-", dir=temporary_dir()) as folder:
        own = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        run(here.folders, "read-tree", here.commit, env=own)
        ask = ("check-attr", "--cached", "--stdin", "-z", "filter")
        view = Folders(here.repository.view.with_filters)
        answers = run(view, *ask, stdin=b"\0".join(paths), env=own)
    fields = answers.split(b"\0")
    return {path for path, value in zip(fields[::3], fields[2::3], strict=False) if value == b"lfs"}
