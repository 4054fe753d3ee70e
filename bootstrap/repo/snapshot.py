"""A snapshot: the working tree as one git object with a fixed id, to be sent to a box.

It is a commit in boxstrap's own store, outside of the repository, with the user's commit as its
parent. Its tree has the bytes of the working tree as they are: no filter, no conversion of line
endings or encodings, submodules as ordinary folders. The repository itself is not changed.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ..errors import BoxstrapError, UsageError
from ..paths import PROFILE
from .changes import SUBMODULE, ChangeCount, changes_between, content_of, count
from .credentials import find_credentials
from .git import Folders, GitError, broken, run
from .here import LocalRepository
from .lfs import pointers, pointers_of_commit, with_lfs
from .names import decoded, shown
from .snapshot_index import Indexed, embed, index_working_tree
from .snapshot_store import KEPT, SnapshotStore, State

Include = Literal["all", "tracked", "commit"]
"""Which changes travel with the commit: all, those of tracked files, none."""

_MOST_LISTED = 10
_MIB = 1024 * 1024
_NAMED = 10_000
"""How many untracked files already shown to the user are remembered."""


@dataclass(frozen=True)
class Snapshot:
    """A commit with the changes in its working tree.

    `id` is the snapshot's commit object, with `commit` as its parent; it is `commit` itself if
    nothing differs from it. `tree` is the id of its tree; `content` is the digest of the tree
    without the repository's own profile: that is read here, and does not make it other work.
    `folders` is where git can read all of these objects. `new` are files that git doesn't track,
    `first_time` those not yet shown to the user; `left` is what can't travel, and why.
    """

    commit: str
    id: str
    tree: str
    content: str
    changes: ChangeCount
    folders: Folders
    include: Include = "commit"
    new: tuple[str, ...] = ()
    first_time: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    only_profile: bool = False
    """Whether only the repository's own profile differs."""


def take_snapshot(
    here: LocalRepository, include: Include = "all", *, max_file_mib: float = 100
) -> Snapshot:
    """Take a snapshot of the repository `here`, without writing to it.

    For a bare repository or a requested ref it is the commit alone. Raises UsageError if a new
    file is larger than `max_file_mib` or looks like a credential, BoxstrapError if git fails.
    """
    if here.bare or here.asked is not None:
        include = "commit"
    store = SnapshotStore(here)
    taker = _Taker(here, store, include, max_file_mib)
    with store.locked():
        try:
            return taker.take()
        except (GitError, OSError):  # the store may be damaged, so make it again
            store.remove()
        try:
            return taker.take()
        except GitError as failure:
            amiss = unreadable(here, failure) or broken(here.root, failure, store.git_dir.parent)
            raise amiss from failure
        except OSError as error:
            raise BoxstrapError(
                f"no snapshot can be made: {error.strerror or error}.",
                where=shown(str(error.filename or here.root)),
                hint="Look at that file, and run the same command again.",
            ) from None


def unreadable(here: LocalRepository, failure: GitError) -> UsageError | None:
    """Return the error for a file that this user may not read, if git reports one."""
    denied = re.search(r'open\("(.+)"\): Permission denied', failure.said)
    if not denied:
        return None
    return UsageError(
        f"{shown(denied[1])} can't be read, and so can't travel.",
        where=shown(str(here.root)),
        hint="Make it readable for you, or let git ignore it (.gitignore, .git/info/exclude).",
    )


def checked(here: LocalRepository, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with all its objects; a store that lost some is made again.

    Raises BoxstrapError if the files have changed by now.
    """
    if snapshot.id == snapshot.commit:
        return snapshot
    asked = ("rev-list", "--objects", "--quiet", snapshot.id, f"^{snapshot.commit}")
    with contextlib.suppress(GitError):
        run(snapshot.folders, *asked)
        return snapshot
    forget(here)
    again = take_snapshot(replace(here, asked=None), snapshot.include, max_file_mib=math.inf)
    if again.id != snapshot.id:
        raise BoxstrapError(
            "files changed while they were to be sent.",
            where=shown(str(here.root)),
            hint="Run the same command again.",
        )
    return again


def forget(here: LocalRepository) -> None:
    """Delete the store, in which something can't be read. The next snapshot makes it again."""
    store = SnapshotStore(here)
    with store.locked():
        store.remove()


def remember(here: LocalRepository, snapshot: Snapshot) -> None:
    """Note that a box has it: its objects are kept, and its new files count as shown."""
    if snapshot.id == snapshot.commit:
        return
    store = SnapshotStore(here)
    with contextlib.suppress(OSError), store.locked():
        state = store.state()
        state.sent = [*(each for each in state.sent if each != snapshot.id), snapshot.id][-KEPT:]
        state.named = [*state.named, *snapshot.first_time][-_NAMED:]
        store.save(state)


class _Taker:
    def __init__(
        self, here: LocalRepository, store: SnapshotStore, include: Include, max_file_mib: float
    ) -> None:
        self.here = here
        self.store = store
        self.include = include
        self._max_bytes = max_file_mib * _MIB

    def take(self) -> Snapshot:
        """Take the snapshot, reusing what is still valid of the last one."""
        self.store.prepare()
        if self.include == "commit":
            return self._of_the_commit()
        here, state = self.here, self.store.state()
        found = index_working_tree(
            here, self.store, untracked=self.include == "all", check=self._refuse_large
        )
        if found.left is not None:
            state.left = _named(found.left)
        if (state.commit, state.include, state.tree) != (here.commit, self.include, found.tree):
            self._compare(found, state)
        if found.left is not None or state.tree != found.tree:
            self.store.save(state)
        return Snapshot(
            commit=here.commit,
            id=state.id,
            tree=state.tree,
            content=state.content,
            changes=ChangeCount(*state.changes),
            folders=self.store.folders,
            include=self.include,
            only_profile=state.only_profile,
            new=tuple(state.new),
            first_time=tuple(sorted({*state.new} - {*state.named})),
            left=tuple((path, why) for path, why in [*state.left, *state.pointers]),
        )

    def _of_the_commit(self) -> Snapshot:
        here, store = self.here, self.store
        listed = run(here.folders, "ls-tree", "-r", "-z", "--full-tree", here.commit)
        alone = pointers_of_commit(here, listed, store.git_dir / "attributes-index")
        left = dict.fromkeys(alone, "an LFS file, of which the commit has only a pointer")
        tree = here.tree
        if b"160000 commit " in listed:
            tree, lacking = embed(here, store)
            left |= lacking
        return Snapshot(
            commit=here.commit,
            id=self._commit_of(tree),
            tree=tree,
            content=content_of(store.folders, tree),
            changes=ChangeCount(),
            folders=here.folders if tree == here.tree else store.folders,
            left=tuple(_named(left)),
        )

    def _compare(self, found: Indexed, state: State) -> None:
        """Check and count the new tree's differences from the commit, and save them in `state`."""
        here, store = self.here, self.store
        changes = changes_between(store.folders, here.tree, found.tree)
        if any(change.mode_before == SUBMODULE for change in changes):
            changes = changes_between(store.folders, embed(here, store)[0], found.tree)
        added = {b"%s %s" % (each.blob, each.path): each for each in changes if each.status == b"A"}
        checked = {*(store.read("checked") or b"").split(b"\0")}
        fresh = [each.path for line, each in added.items() if line not in checked]
        self._refuse_large(path for path in fresh if path not in found.new)
        self._refuse_credentials(fresh)
        alone = pointers(here, found.paths.split(b"\0") if found.paths else [])
        state.pointers = _named(
            dict.fromkeys(alone, "a pointer of LFS without its content (git lfs pull)")
        )
        state.changes = [*count(here, changes, store)]
        state.new = [decoded(each.path) for each in added.values() if each.path in found.new]
        state.commit, state.include, state.tree = here.commit, self.include, found.tree
        state.id = self._commit_of(found.tree)
        state.content = content_of(store.folders, found.tree)
        own = any(decoded(change.path) == PROFILE for change in changes)
        state.only_profile = own and sum(state.changes) == 1
        state.taken = [*(each for each in state.taken if each != state.id), state.id][-KEPT:]
        store.write("checked", b"\0".join(added))
        store.tidy(state)
        store.save(state)

    def _commit_of(self, tree: str) -> str:
        """Write a commit of the tree on top of the user's; equal content gives an equal id."""
        here = self.here
        if tree == here.tree:
            return here.commit
        us = f"boxstrap <boxstrap@localhost> {here.committed} +0000"
        text = (
            f"tree {tree}\nparent {here.commit}\nauthor {us}\ncommitter {us}\n\n"
            f"{here.commit[:12]} as it stood in the working tree\n"
        )
        wrote = run(
            self.store.own, "hash-object", "-t", "commit", "-w", "--stdin", stdin=text.encode()
        )
        return wrote.decode().strip()

    def _size(self, path: bytes) -> int:
        try:
            return (self.here.root / decoded(path)).lstat().st_size
        except OSError:
            return 0

    def _refuse_large(self, paths: Iterable[bytes]) -> None:
        large = {path: size for path in paths if (size := self._size(path)) > self._max_bytes}
        for path in with_lfs(self.here, [*large]) if large else ():
            del large[path]
        if large:
            lines = {path: f"{size / _MIB:,.0f} MiB" for path, size in large.items()}
            raise UsageError(
                f"new files are larger than {self._max_bytes / _MIB:g} MiB (git.max_file_mib):\n"
                f"{_listed(lines)}",
                where=shown(str(self.here.root)),
                hint="Let git ignore them (.gitignore, or .git/info/exclude) and copy them to the "
                "box once; or raise git.max_file_mib.",
            )

    def _refuse_credentials(self, paths: Iterable[bytes]) -> None:
        found = find_credentials(self.here.root, paths)
        if found:
            raise UsageError(
                f"new files look like credentials, and would travel:\n{_listed(found)}",
                where=shown(str(self.here.root)),
                hint="Keep them here: name them in .gitignore, or in .git/info/exclude. Values "
                "that the training needs are `secrets:` of the profile.\n"
                "If a file is not a credential, commit it; or send no new files: --set "
                "git.include=tracked",
            )


def _named(left: Mapping[bytes, str]) -> list[tuple[str, str]]:
    return [(decoded(path), why) for path, why in sorted(left.items())]


def _listed(lines: Mapping[bytes, str]) -> str:
    shown_lines = [f"  {shown(decoded(path))}  ({why})" for path, why in sorted(lines.items())]
    more = len(shown_lines) - _MOST_LISTED
    return "\n".join([*shown_lines[:_MOST_LISTED], *([f"  and {more} more"] if more > 0 else [])])
