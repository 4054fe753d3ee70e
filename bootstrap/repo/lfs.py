"""Find Git LFS files that are only pointers, because their content isn't here."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from .git import Folders, run
from .here import LocalRepository
from .names import decoded

_POINTER = b"version https://git-lfs.github.com/spec/"
_LONGEST = 1024
"""Bytes: a pointer is shorter."""
_MOST_READ = 1024 * 1024


def pointers(here: LocalRepository, paths: Collection[bytes]) -> list[bytes]:
    """Return the files at `paths` that are pointers in the working tree. Raises GitError."""
    own = here.repository.place.common_dir / "info" / "attributes"
    named = [here.root / decoded(path) for path in paths if _is_attributes(path)]
    if not any(_mentions_lfs(file) for file in (own, *named)):
        return []
    return [path for path in with_lfs(here, paths) if _is_pointer(here.root / decoded(path))]


def with_lfs(here: LocalRepository, paths: Collection[bytes]) -> list[bytes]:
    """Return the paths that LFS handles by the working tree's attributes. Raises GitError."""
    view = Folders(here.repository.view.with_filters, here.root)
    return _lfs_paths(run(view, *_ASK, stdin=b"\0".join(paths)))


def pointers_of_commit(here: LocalRepository, listed: bytes, index: Path) -> list[bytes]:
    """Return the commit's LFS files, which are pointers; `listed` is from `ls-tree -r -z`.

    `index` is a scratch file to write. Raises GitError.
    """
    entries = [entry.partition(b"\t") for entry in listed.split(b"\0") if entry]
    blobs = [about.split(b" ")[2] for about, _, path in entries if _is_attributes(path)]
    own = here.repository.place.common_dir / "info" / "attributes"
    said = run(here.folders, "cat-file", "--batch", stdin=b"\n".join(blobs)) if blobs else b""
    if b"lfs" not in said and not _mentions_lfs(own):
        return []
    env = {"GIT_INDEX_FILE": str(index)}
    run(here.folders, "read-tree", here.commit, env=env)
    view = Folders(here.repository.view.with_filters)
    paths = b"\0".join(path for _, _, path in entries)
    return _lfs_paths(run(view, *_ASK, "--cached", stdin=paths, env=env))


_ASK = ("check-attr", "--stdin", "-z", "filter")


def _lfs_paths(answers: bytes) -> list[bytes]:
    fields = answers.split(b"\0")
    return [path for path, said in zip(fields[::3], fields[2::3], strict=False) if said == b"lfs"]


def _is_attributes(path: bytes) -> bool:
    return path.rpartition(b"/")[2] == b".gitattributes"


def _mentions_lfs(file: Path) -> bool:
    return b"lfs" in _begin(file, _MOST_READ)


def _is_pointer(file: Path) -> bool:
    return _begin(file, _LONGEST).startswith(_POINTER)


def _begin(file: Path, most: int) -> bytes:
    try:
        if file.is_symlink() or not file.is_file():
            return b""
        with file.open("rb") as opened:
            return opened.read(most)
    except OSError:
        return b""
