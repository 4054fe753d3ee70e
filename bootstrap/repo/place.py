"""Locate a repository by reading files only: no git is run, none of its settings is obeyed.

git itself would accept a bare repository in any folder it runs in, with its configuration,
and a cloned repository may contain one. So the folder is found here and given to git.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from bootstrap.errors import UsageError
from bootstrap.paths import expanded, is_foreign_owned, real
from bootstrap.repo.names import shown
from bootstrap.value import dataclass

_LONGEST = 8 * 1024
_WORKTREE = re.compile(r'^\s*worktree\s*=\s*"?(.*?)"?\s*$', re.MULTILINE)
_PATH = re.compile(r'^\s*path\s*=\s*"?(.*?)"?\s*$', re.MULTILINE)


@dataclass(frozen=True)
class Place:
    """The top of a working tree (for a bare repository its folder), and its git folders.

    `git_dir` belongs to this working tree alone; `common_dir` is shared by all worktrees.
    """

    root: Path
    git_dir: Path
    common_dir: Path
    bare: bool

    def strangers(self) -> list[Path]:
        """Return the paths that belong to another user; git checks the same ones."""
        asked = dict.fromkeys((self.root, self.root / ".git", self.git_dir, self.common_dir))
        bare_has_no_dot_git = {self.root / ".git"} if self.bare else set[Path]()
        return [
            path for path in asked if path not in bare_has_no_dot_git and is_foreign_owned(path)
        ]

    def endless(self) -> Path | None:
        """Return what git would read first and isn't a file, such as a pipe."""
        config = self.common_dir / "config"
        included = (config.parent / expanded(path) for path in _PATH.findall(read_text(config)))
        named = (head(self.git_dir) or "").removeprefix("ref:").strip()
        rest = (self.git_dir / "config.worktree", self.common_dir / "objects/info/alternates")
        tree = (self.root / ".gitignore", self.root / ".gitattributes")
        of_tree = (each for each in tree if not each.is_symlink())  # git follows none there
        read = (config, *included, *rest, self.common_dir / named, *of_tree)
        return next(filter(_is_endless, read), None)

    def others(self) -> list[Path]:
        """Return the git and object folders outside of this repository that it would use. Those of
        a worktree or a submodule are its own if the git folder names it back."""
        own = [self.root, self.common_dir] if self._is_named_back() else [self.root]
        found: list[Path] = []
        for path in (self.git_dir, self.common_dir, *_object_folders(self.common_dir / "objects")):
            if not any(path.is_relative_to(folder) for folder in (*own, *found)):
                found.append(path)
        return found

    def _is_named_back(self) -> bool:
        if self.git_dir != self.common_dir:
            named = read_text(self.git_dir / "gitdir").strip()
            is_worktree = self.git_dir.parent == self.common_dir / "worktrees"
            return is_worktree and real(self.git_dir / named) == self.root / ".git"
        trees = _WORKTREE.findall(read_text(self.common_dir / "config"))
        return bool(trees) and real(self.common_dir / trees[-1]) == self.root


def locate(path: Path) -> Place:
    """Find the repository around `path`: the nearest `.git` upwards, or a bare one that is in no
    working tree. Raises UsageError if there is none, or its `.git` leads nowhere."""
    start = expanded(path).absolute()
    if not start.exists():
        raise UsageError("there is no such folder.", where=shown(str(path)))
    start = real(start)
    bare = None
    for folder in (start, *start.parents):
        dot_git = folder / ".git"
        git_dir = _led_to(dot_git) if dot_git.is_file() else dot_git
        if common_dir := _common_dir(git_dir):
            return Place(folder, real(git_dir), common_dir, bare=False)
        if dot_git.is_file():
            break
        if bare is None and _common_dir(folder):
            bare = Place(folder, folder, folder, bare=True)
    if bare is None:
        raise UsageError(
            "this is not a git repository, nor inside one.",
            where=shown(str(path)),
            hint="Run from your project, name it with --repo PATH, or start one: git init",
        )
    return bare


def repository_root(place: Path) -> Path | None:
    """Return the nearest folder upwards that has a `.git`, without checking it."""
    place = real(place)
    return next((folder for folder in (place, *place.parents) if (folder / ".git").exists()), None)


def _led_to(dot_git: Path) -> Path:
    word, _, named = read_text(dot_git).partition(":")
    return dot_git.parent / named.strip() if word == "gitdir" and named.strip() else dot_git


def _common_dir(git_dir: Path) -> Path | None:
    """Return the folder that all worktrees of `git_dir` share; None if it is no git folder."""
    if head(git_dir) is None:
        return None
    common = real(git_dir / read_text(git_dir / "commondir").strip())
    return common if all(map(os.path.isdir, (common / "objects", common / "refs"))) else None


def head(git_dir: Path) -> str | None:
    """Return the content of HEAD as git writes it; None if there is none."""
    file = git_dir / "HEAD"
    try:
        if file.is_symlink() and str(file.readlink()).startswith("refs/"):
            return f"ref: {file.readlink()}\n"
    except OSError:
        return None
    return read_text(file) or None


def read_text(file: Path, longest: int = _LONGEST) -> str:
    """Return a short file's text; "" if it is no regular file, since a pipe would block."""
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as opened:
            read = opened.read(longest).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
    return "" if "\0" in read else read


def _is_endless(file: Path) -> bool:
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _object_folders(objects: Path) -> list[Path]:
    """List where git finds objects: the folder, what its links lead to, and its alternates."""
    found: dict[Path, None] = {}
    left = [objects]
    while left:
        folder = real(left.pop())
        if folder not in found:
            found[folder] = None
            left += _alternates(folder)
            found |= dict.fromkeys(map(real, _links(folder, deep=1)))
    return list(found)


def _alternates(objects: Path) -> list[Path]:
    file = objects / "info" / "alternates"
    if not file.is_file():
        return []
    lines = (os.fsdecode(line.partition(b"\0")[0]) for line in file.read_bytes().split(b"\n"))
    # A quoted path may have any escapes, so it counts as outside of the repository.
    return [
        Path("/", line) if line.startswith('"') else objects / line
        for line in lines
        if line and not line.startswith("#")
    ]


def _links(folder: Path, *, deep: int) -> Iterator[Path]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_symlink():
            yield Path(entry.path)
        elif deep and entry.is_dir():
            yield from _links(Path(entry.path), deep=deep - 1)
