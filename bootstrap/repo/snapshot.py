"""A snapshot: the working tree as one git object with a fixed id, to be sent to a box.

It is a commit in boxstrap's own store, outside of the repository, with the user's commit as its
parent. Its tree has the bytes of the working tree as they are: no filter, no conversion of line
endings or encodings, submodules as ordinary folders. The repository itself is not changed.

boxstrap's own index is kept between calls, so that git reads only what changed. The user's index is
used only as a list of files: a flag in it hides no change.
"""

import contextlib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Literal

from bootstrap.errors import NO_ROOM, BoxstrapError, UsageError, write_error
from bootstrap.paths import PROFILE
from bootstrap.repo.git import Folders, GitError, git_error, run_git
from bootstrap.repo.local import LocalRepository
from bootstrap.repo.names import decoded, shown
from bootstrap.repo.snapshot_store import (
    KEPT,
    SUBMODULE,
    ChangeCount,
    SnapshotStore,
    State,
    changes_between,
    content_of,
    count_changes,
    filters_of,
)
from bootstrap.repo.working_files import (
    EXECUTABLE,
    NO_FILE,
    PLAIN,
    WorkingFiles,
    begin_of,
    find_credentials,
    is_plain,
    listing,
    submodule,
    untracked_first,
    working_files,
)
from bootstrap.sizes import first_of
from bootstrap.value import dataclass, replace

_TAKE = ("update-index", "--add", "--remove", "--replace", "-z")
# First compares what the index has already with the files; exits with 1 if some differ.
_COMPARED = ("update-index", "-q", "--refresh")
_BY_LINE = ("update-index", "-z", "--index-info")
_EXISTS = ("rev-parse", "-q", "--verify")


@dataclass(frozen=True)
class Indexed:
    """The content of the working tree, written as a tree."""

    tree: str
    paths: bytes  # its files, separated by NUL
    new: frozenset[bytes]  # those that git doesn't track
    left: dict[bytes, str] | None  # what can't travel, and why; None if that is unchanged


def index_working_tree(
    here: LocalRepository,
    store: SnapshotStore,
    *,
    untracked: bool,
    check: Callable[[Iterable[bytes]], None],
) -> Indexed:
    """Write the bytes of the working tree into the store. `check` may refuse untracked files before
    they are read. Raises GitError."""
    listed = listing(here.repository, untracked=untracked)
    plain = is_plain(listed)
    if plain and listed == store.read("listing"):
        new = frozenset(path for path in untracked_first(listed) if not path.endswith(b"/"))
        check(new)
        paths = store.read("paths") or b""
        if _take(store, paths):
            return Indexed(_known_tree(store) or _tree_of(store), paths, new, None)
    files = working_files(here.repository, listed, untracked=untracked)
    standing = files.standing(here.root)
    new = frozenset(files.new.intersection(standing))
    check(new)
    _leave_ignored(here, files)
    for folder in files.objects:
        store.add_objects(folder)
    paths = b"\0".join(standing)
    _renew(here, store, files, standing)
    store.write("paths", paths)
    # A file that is missing now may be back the next time, with the same listing.
    whole = plain and len(standing) == len(files.tracked) + len(files.new)
    store.write("listing", listed if whole else b"")
    return Indexed(_tree_of(store), paths, new, files.left)


def embed(here: LocalRepository, store: SnapshotStore) -> tuple[str, dict[bytes, str]]:
    """Write the commit's tree with its pinned submodules in it; return it and what was left out.
    Raises GitError."""
    index = store.git_dir / "embedded"
    index.unlink(missing_ok=True)
    own = {"GIT_INDEX_FILE": str(index)}
    run_git(store.with_all, "read-tree", here.commit, env=own)
    left: dict[bytes, str] = {}
    tried = set[tuple[str, bytes]]()
    while links := _submodules(run_git(store.own, "ls-files", "-s", "-z", env=own)) - tried:
        tried |= links
        for commit, path in sorted(links):
            inner = submodule(here.repository, path)
            if isinstance(inner, str):
                left[path] = inner
                continue
            store.add_objects(inner.place.common_dir / "objects")
            if not run_git(store.folders, *_EXISTS, f"{commit}^{{tree}}", ok=(0, 1)):
                left[path] = f"commit {commit[:12]} of this submodule isn't here"
                continue
            gone = b"0 %s\t%s\0" % (b"0" * len(commit), path)
            run_git(store.own, *_BY_LINE, stdin=gone, env=own)
            run_git(store.with_all, "read-tree", f"--prefix={decoded(path)}/", commit, env=own)
    return _written(store, **own), left


def _submodules(listed: bytes) -> set[tuple[str, bytes]]:
    entries = (entry.partition(b"\t") for entry in listed.split(b"\0"))
    return {
        (about.split(b" ")[1].decode(), path)
        for about, _, path in entries
        if about.startswith(b"160000 ")
    }


def _renew(
    here: LocalRepository, store: SnapshotStore, files: WorkingFiles, standing: list[bytes]
) -> None:
    """Make the index contain exactly these files."""
    before, absent = store.read("paths"), store.read("absent") or b""
    seeds: list[bytes] = []
    if before is None:  # start with the commit's files, which need not be written here
        store.forget("index")
        seeds = run_git(store.folders, "ls-tree", "-r", "-z", "--full-tree", here.commit).split(
            b"\0"
        )
        before, absent = b"\0".join(seed.partition(b"\t")[2] for seed in seeds), b""
    # If this is interrupted from here on, the index is made again.
    store.forget("paths", "listing")
    gone = {*before.split(b"\0"), *absent.split(b"\0")} - {b"", *standing, *files.absent}
    nothing = b"0" * len(here.commit)
    lines = [b"%s\0" % seed for seed in seeds if seed]
    lines += [b"0 %s\t%s\0" % (nothing, path) for path in sorted(gone)]
    lines += [b"%s\t%s\0" % (entry, path) for path, entry in sorted(files.absent.items())]
    if lines:
        run_git(store.own, *_BY_LINE, stdin=b"".join(lines))
    store.write("absent", b"\0".join(files.absent))
    take, ok = ((*_COMPARED, *_TAKE[1:]), (0, 1)) if seeds else (_TAKE, (0,))
    run_git(store.own, *take, "--stdin", stdin=b"\0".join(standing), ok=ok)
    if store.ignores_modes:
        for sign, mode in (("+", EXECUTABLE), ("-", PLAIN)):
            paths = [path for path in standing if files.tracked.get(path) == mode]
            paths = [path for path in paths if path not in files.links]
            run_git(store.own, *_TAKE, f"--chmod={sign}x", "--stdin", stdin=b"\0".join(paths))


def _take(store: SnapshotStore, paths: bytes) -> bool:
    try:
        run_git(store.own, *_TAKE, "--stdin", stdin=paths)
    except GitError:  # something else is in a file's place now
        return False
    return True


def _tree_of(store: SnapshotStore) -> str:
    tree = _written(store)
    store.write("tree", f"{_mark(store)}{tree}")  # git may have written the index again
    return tree


def _known_tree(store: SnapshotStore) -> str:
    """Return the tree without asking git if the index is unchanged since, else ""."""
    mark, known = _mark(store), (store.read("tree") or b"").decode()
    tree = known.removeprefix(mark)
    there = tree and (store.git_dir / "objects" / tree[:2] / tree[2:]).is_file()
    return tree if there and known.startswith(mark) else ""


def _mark(store: SnapshotStore) -> str:
    index = (store.git_dir / "index").stat()
    return f"{index.st_ino} {index.st_mtime_ns} {index.st_size} "


def _written(store: SnapshotStore, **env: str) -> str:
    return run_git(store.own, "write-tree", "--missing-ok", env=env).decode().strip()


def _leave_ignored(here: LocalRepository, files: WorkingFiles) -> None:
    """Don't report what can't travel if git ignores it anyway."""
    odd = [path for path, why in files.left.items() if why == NO_FILE and path not in files.tracked]
    if not odd:
        return
    with contextlib.suppress(GitError):  # git refuses paths inside a submodule
        asked = run_git(
            here.folders, "check-ignore", "-z", "--stdin", stdin=b"\0".join(odd), ok=(0, 1)
        )
        for path in asked.split(b"\0")[:-1]:
            files.left.pop(path, None)


_POINTER = b"version https://git-lfs.github.com/spec/"
_LONGEST = 1024  # bytes: a pointer is shorter
_MOST_READ = 1024 * 1024


def pointers(here: LocalRepository, paths: Collection[bytes]) -> list[bytes]:
    """Return the files at `paths` that are pointers in the working tree. Raises GitError."""
    own = here.repository.place.common_dir / "info" / "attributes"
    named = [here.root / decoded(path) for path in paths if _is_attributes(path)]
    if not any(_mentions_lfs(file) for file in (own, *named)):
        return []
    begins = ((p, begin_of(here.root / decoded(p), _LONGEST)) for p in with_lfs(here, paths))
    return [path for path, begin in begins if begin.startswith(_POINTER)]


def with_lfs(here: LocalRepository, paths: Collection[bytes]) -> list[bytes]:
    """Return the paths that LFS handles by the working tree's attributes. Raises GitError."""
    return [path for path, said in filters_of(here, paths).items() if said == b"lfs"]


def pointers_of_commit(here: LocalRepository, listed: bytes, index: Path) -> list[bytes]:
    """Return the commit's LFS files, which are pointers; `listed` is from `ls-tree -r -z`. `index`
    is a scratch file to write. Raises GitError."""
    entries = [entry.partition(b"\t") for entry in listed.split(b"\0") if entry]
    blobs = [about.split(b" ")[2] for about, _, path in entries if _is_attributes(path)]
    own = here.repository.place.common_dir / "info" / "attributes"
    said = run_git(here.folders, "cat-file", "--batch", stdin=b"\n".join(blobs)) if blobs else b""
    if b"lfs" not in said and not _mentions_lfs(own):
        return []
    run_git(here.folders, "read-tree", here.commit, env={"GIT_INDEX_FILE": str(index)})
    found = filters_of(here, (path for _, _, path in entries), index=index)
    return [path for path, said in found.items() if said == b"lfs"]


def _is_attributes(path: bytes) -> bool:
    return path.rpartition(b"/")[2] == b".gitattributes"


def _mentions_lfs(file: Path) -> bool:
    return b"lfs" in begin_of(file, _MOST_READ)


Include = Literal["all", "tracked", "commit"]
"""Which changes travel with the commit: all, those of tracked files, none."""

_MOST_LISTED = 10
_MIB = 1024 * 1024
_NAMED = 10_000  # how many untracked files already shown to the user are remembered


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
    only_profile: bool = False  # whether only the repository's own profile differs


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
            amiss = unreadable_error(here, failure) or git_error(
                here.root, failure, store.git_dir.parent
            )
            raise amiss from failure
        except OSError as error:
            if error.errno in NO_ROOM:
                raise write_error(shown(str(store.git_dir.parent)), error) from None
            raise BoxstrapError(
                f"no snapshot can be made: {error.strerror or error}.",
                where=shown(str(error.filename or here.root)),
                hint="Look at that file, and run the same command again.",
            ) from None


def unreadable_error(here: LocalRepository, failure: GitError) -> UsageError | None:
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
    """Return it with all its objects, made again if some are lost. Raises BoxstrapError."""
    if snapshot.id == snapshot.commit:
        return snapshot
    asked = ("rev-list", "--objects", "--quiet", snapshot.id, f"^{snapshot.commit}")
    with contextlib.suppress(GitError):
        run_git(snapshot.folders, *asked)
        return snapshot
    forget_snapshot(here)
    again = take_snapshot(replace(here, asked=None), snapshot.include, max_file_mib=math.inf)
    if again.id != snapshot.id:
        raise BoxstrapError(
            "files changed while they were to be sent.",
            where=shown(str(here.root)),
            hint="Run the same command again.",
        )
    return again


def forget_snapshot(here: LocalRepository) -> None:
    """Delete the store, in which something can't be read. The next snapshot makes it again."""
    store = SnapshotStore(here)
    with store.locked():
        store.remove()


def remember_snapshot(here: LocalRepository, snapshot: Snapshot) -> None:
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
        listed = run_git(here.folders, "ls-tree", "-r", "-z", "--full-tree", here.commit)
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
        self._refuse(fresh, self._large(path for path in fresh if path not in found.new))
        alone = pointers(here, found.paths.split(b"\0") if found.paths else [])
        state.pointers = _named(
            dict.fromkeys(alone, "a pointer of LFS without its content (git lfs pull)")
        )
        state.changes = [*count_changes(here, changes, store)]
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
        return self.store.add_commit(text, here.object_format)

    def _size(self, path: bytes) -> int:
        try:
            return (self.here.root / decoded(path)).lstat().st_size
        except OSError:
            return 0

    def _large(self, paths: Iterable[bytes]) -> dict[bytes, str]:
        large = {path: size for path in paths if (size := self._size(path)) > self._max_bytes}
        for path in with_lfs(self.here, [*large]) if large else ():
            del large[path]
        return {path: f"{size / _MIB:,.0f} MiB" for path, size in large.items()}

    def _refuse_large(self, paths: Iterable[bytes]) -> None:
        paths = [*paths]
        if large := self._large(paths):
            self._refuse(paths, large)

    def _refuse(self, paths: Iterable[bytes], large: Mapping[bytes, str]) -> None:
        """Raise UsageError for `large` and what of `paths` looks like a credential, both at once:
        who mended the one would meet the other only then."""
        what, hints = [], []
        if large:
            what.append(
                f"new files are larger than {self._max_bytes / _MIB:g} MiB (git.max_file_mib):\n"
                f"{_listed(large)}"
            )
            hints.append(
                "Large ones: let git ignore them (.gitignore, or .git/info/exclude), and after the "
                "setup send them once: boxstrap push PATH; or raise git.max_file_mib."
            )
        if found := find_credentials(self.here.root, paths):
            what.append(f"new files look like credentials, and would travel:\n{_listed(found)}")
            hints.append(
                "Credentials: keep them here, named in .gitignore or .git/info/exclude. Values "
                "that the training needs are `secrets:` of the profile.\n"
                "If a file is not a credential, commit it; or send no new files: --set "
                "git.include=tracked"
            )
        if what:
            where = shown(str(self.here.root))
            raise UsageError("\n".join(what), where=where, hint="\n".join(hints))


def _named(left: Mapping[bytes, str]) -> list[tuple[str, str]]:
    return [(decoded(path), why) for path, why in sorted(left.items())]


def _listed(lines: Mapping[bytes, str]) -> str:
    rows = [f"{shown(decoded(path))}  ({why})" for path, why in sorted(lines.items())]
    return "\n".join(f"  {row}" for row in first_of(rows, _MOST_LISTED))
