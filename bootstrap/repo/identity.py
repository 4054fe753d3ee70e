"""A repository's identity, which stays the same when its remote or its path changes.

    repositories/DIGEST.json   one for each repository, in the state folder: its id, its git
                               folder, the first commit of its main line

Nothing is written into the repository itself (docs/adr/0021).
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from bootstrap.errors import UsageError
from bootstrap.paths import state_dir, write_private
from bootstrap.repo.git import Folders, GitError, run_git
from bootstrap.repo.place import locate


@dataclass(frozen=True)
class Identity:
    """A known repository. `id` is a plain folder name, `root` the first commit, "" if unknown.

    While `marks` stay the same nothing was added, and git need not be asked.
    """

    id: str
    git_dir: str
    root: str
    marks: list[int]
    created: float

    @property
    def exists(self) -> bool:
        """Whether its git folder still exists."""
        return bool(self.git_dir) and os.path.isdir(self.git_dir)  # noqa: PTH112 - never raises

    @property
    def file(self) -> Path:
        """The file of this record."""
        return _file(self.git_dir or self.id)


def identify(
    folders: Folders, git_dir: Path, usual: str, *, shallow: bool, first: str | None = None
) -> Identity:
    """Identify the repository in `git_dir`, running git on `folders`.

    `usual` is the id derived from its address or path: a mirror of `git.url` always has
    that. `first` is its first commit, if known. If the state folder can't be written, nothing
    is remembered.
    """
    file, marks = _file(str(git_dir)), _marks(git_dir)
    known = _read(file)
    if known and known.marks == marks and (known.root or shallow):
        return known
    if shallow or (known and _holds(folders, known.root)):
        first = ""
    elif first is None:
        first = _first_commit(folders)
    if known and not (known.root and first):
        found = dataclasses.replace(known, root=known.root or first, marks=marks)
    else:
        if known:  # the one known here may have moved elsewhere
            _write(dataclasses.replace(known, git_dir=""))
        found = _new_identity(git_dir, usual, first, marks)
    _write(found)
    return found


def known_folder(id_: str, root: str) -> Path | None:
    """Find the git folder of a known repository by id, else by first commit; None unless unique."""
    there = [each for each in _all() if each.exists]
    found = [each for each in there if each.id == id_] or [
        each for each in there if root and each.root == root
    ]
    return Path(found[0].git_dir) if len(found) == 1 else None


def known_key(place: Path) -> str | None:
    """Return the key of the repository around `place`, "" if it is not known yet; runs no git.

    None if there is no repository.
    """
    try:
        found = _read(_file(str(locate(place).common_dir)))
    except UsageError:
        return None
    return found.id if found else ""


def _holds(folders: Folders, commit: str) -> bool:
    """Whether the repository has the commit, and so is still the known one."""
    with contextlib.suppress(GitError):
        if commit:
            run_git(folders, "cat-file", "-e", f"{commit}^{{commit}}")
            return True
    return False


def _new_identity(git_dir: Path, usual: str, first: str, marks: list[int]) -> Identity:
    """Take over the record of a repository that moved here, else make one; a clone gets its own."""
    new = Identity(usual, str(git_dir), first, marks, time.time())
    mirrors = state_dir() / "mirrors"
    if mirrors in git_dir.parents:
        return new
    others = [each for each in _all() if mirrors not in Path(each.git_dir).parents]
    moved = [each for each in others if first and each.root == first and not each.exists]
    if moved:
        last = max(moved, key=lambda each: each.created)
        with contextlib.suppress(OSError):
            last.file.unlink()
        return dataclasses.replace(last, git_dir=str(git_dir), marks=marks)
    name = usual.rpartition("-")[0]
    taken = {each.id for each in others if each.exists or (first and each.root not in ("", first))}
    places = hashlib.sha256(os.fsencode(git_dir)).hexdigest()
    ids = (usual, f"{name}-{places[:8]}", f"{name}-{secrets.token_hex(4)}")
    return dataclasses.replace(new, id=next(each for each in ids if each not in taken))


def _first_commit(folders: Folders) -> str:
    """Return the first commit of the main line, or "" if git can't tell."""
    try:
        said = run_git(folders, "rev-list", "--first-parent", "--max-parents=0", "HEAD", "--")
    except GitError:
        return ""
    return said.decode().strip()


def _marks(git_dir: Path) -> list[int]:
    found = []
    for name in ("objects", "refs"):
        with contextlib.suppress(OSError):
            state = (git_dir / name).stat()
            found += [state.st_ino, state.st_mtime_ns]
    return found


def _file(text: str) -> Path:
    digest = hashlib.sha256(os.fsencode(text)).hexdigest()[:16]
    return state_dir() / "repositories" / f"{digest}.json"


def _all() -> list[Identity]:
    with contextlib.suppress(OSError):
        files = sorted((state_dir() / "repositories").glob("*.json"))
        return [found for found in map(_read, files) if found]
    return []


def _read(file: Path) -> Identity | None:
    """Read a record; None if it is missing or can't be read."""
    try:
        found = Identity(**json.loads(file.read_text(encoding="utf-8", errors="surrogateescape")))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    texts = (found.id, found.git_dir, found.root)
    return found if found.id and all(isinstance(text, str) for text in texts) else None


def _write(found: Identity) -> None:
    """Save it; if nothing can be written, nothing is remembered."""
    with contextlib.suppress(OSError):
        write_private(found.file, json.dumps(dataclasses.asdict(found)))
