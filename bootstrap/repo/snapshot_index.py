"""boxstrap's own index of a working tree, and the trees that are written from it.

It is kept between calls, so that git reads only what changed. The user's index is used only as
a list of files: a flag in it hides no change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .git import GitError, run
from .here import LocalRepository
from .names import decoded
from .snapshot_store import SnapshotStore
from .working_files import (
    EXECUTABLE,
    NO_FILE,
    PLAIN,
    WorkingFiles,
    is_plain,
    listing,
    submodule,
    untracked_first,
    working_files,
)

_TAKE = ("update-index", "--add", "--remove", "--replace", "-z")
# First compares what the index has already with the files; exits with 1 if some differ.
_COMPARED = ("update-index", "-q", "--refresh")
_BY_LINE = ("update-index", "-z", "--index-info")
_EXISTS = ("rev-parse", "-q", "--verify")


@dataclass(frozen=True)
class Indexed:
    """The content of the working tree, written as a tree."""

    tree: str
    paths: bytes
    """Its files, separated by NUL."""
    new: frozenset[bytes]
    """Those that git doesn't track."""
    left: dict[bytes, str] | None
    """What can't travel, and why; None if that is unchanged."""


def index_working_tree(
    here: LocalRepository,
    store: SnapshotStore,
    *,
    untracked: bool,
    check: Callable[[Iterable[bytes]], None],
) -> Indexed:
    """Write the bytes of the working tree into the store.

    `check` may refuse untracked files before they are read. Raises GitError.
    """
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

    Raises GitError.
    """
    index = store.git_dir / "embedded"
    index.unlink(missing_ok=True)
    own = {"GIT_INDEX_FILE": str(index)}
    run(store.with_all, "read-tree", here.commit, env=own)
    left: dict[bytes, str] = {}
    tried = set[tuple[str, bytes]]()
    while links := _submodules(run(store.own, "ls-files", "-s", "-z", env=own)) - tried:
        tried |= links
        for commit, path in sorted(links):
            inner = submodule(here.repository, path)
            if isinstance(inner, str):
                left[path] = inner
                continue
            store.add_objects(inner.place.common_dir / "objects")
            if not run(store.folders, *_EXISTS, f"{commit}^{{tree}}", ok=(0, 1)):
                left[path] = f"commit {commit[:12]} of this submodule isn't here"
                continue
            gone = b"0 %s\t%s\0" % (b"0" * len(commit), path)
            run(store.own, *_BY_LINE, stdin=gone, env=own)
            run(store.with_all, "read-tree", f"--prefix={decoded(path)}/", commit, env=own)
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
        seeds = run(store.folders, "ls-tree", "-r", "-z", "--full-tree", here.commit).split(b"\0")
        before, absent = b"\0".join(seed.partition(b"\t")[2] for seed in seeds), b""
    # If this is interrupted from here on, the index is made again.
    store.forget("paths", "listing")
    gone = {*before.split(b"\0"), *absent.split(b"\0")} - {b"", *standing, *files.absent}
    nothing = b"0" * len(here.commit)
    lines = [b"%s\0" % seed for seed in seeds if seed]
    lines += [b"0 %s\t%s\0" % (nothing, path) for path in sorted(gone)]
    lines += [b"%s\t%s\0" % (entry, path) for path, entry in sorted(files.absent.items())]
    if lines:
        run(store.own, *_BY_LINE, stdin=b"".join(lines))
    store.write("absent", b"\0".join(files.absent))
    take, ok = ((*_COMPARED, *_TAKE[1:]), (0, 1)) if seeds else (_TAKE, (0,))
    run(store.own, *take, "--stdin", stdin=b"\0".join(standing), ok=ok)
    if store.says("filemode") == "false":  # git has the executable bit, the disk has none
        for sign, mode in (("+", EXECUTABLE), ("-", PLAIN)):
            paths = [path for path in standing if files.tracked.get(path) == mode]
            paths = [path for path in paths if path not in files.links]
            run(store.own, *_TAKE, f"--chmod={sign}x", "--stdin", stdin=b"\0".join(paths))


def _take(store: SnapshotStore, paths: bytes) -> bool:
    try:
        run(store.own, *_TAKE, "--stdin", stdin=paths)
    except GitError:  # something else is in a file's place now
        return False
    return True


def _tree_of(store: SnapshotStore) -> str:
    """Write the index as a tree."""
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
    return run(store.own, "write-tree", "--missing-ok", env=env).decode().strip()


def _leave_ignored(here: LocalRepository, files: WorkingFiles) -> None:
    """Don't report what can't travel if git ignores it anyway."""
    odd = [path for path, why in files.left.items() if why == NO_FILE and path not in files.tracked]
    if not odd:
        return
    with contextlib.suppress(GitError):  # git refuses paths inside a submodule
        asked = run(here.folders, "check-ignore", "-z", "--stdin", stdin=b"\0".join(odd), ok=(0, 1))
        for path in asked.split(b"\0")[:-1]:
            files.left.pop(path, None)
