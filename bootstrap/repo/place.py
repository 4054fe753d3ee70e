"""Where a repository lies, by reading files alone: no git is run, nothing of it is obeyed.

git itself would take a bare repository in any folder it stands in, and its configuration
with it: a cloned repository may carry one. So the folder is found here, and git is told it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..owner import of_another
from .names import shown

_LONGEST = 8 * 1024


@dataclass(frozen=True)
class Place:
    """The top of a working tree (of a bare repository its folder), and its git folders.

    `git_dir` is of this working tree alone; `common_dir` is what all worktrees share.
    """

    root: Path
    git_dir: Path
    common_dir: Path
    bare: bool

    def strangers(self) -> list[Path]:
        """What of it belongs to another user: git asks the same of the same places."""
        asked = dict.fromkeys((self.root, self.root / ".git", self.git_dir, self.common_dir))
        bare_has_no_dot_git = {self.root / ".git"} if self.bare else set[Path]()
        return [path for path in asked if path not in bare_has_no_dot_git and of_another(path)]


def find(path: Path) -> Place:
    """The repository around `path`: the nearest folder upwards with a `.git`.

    A bare repository counts only where it lies in no working tree.
    Raises UsageError where there is none, or its `.git` leads nowhere.
    """
    start = path.expanduser().absolute()
    if not start.exists():
        raise UsageError("there is no such folder.", where=shown(str(path)))
    start = start.resolve()
    bare = None
    for folder in (start, *start.parents):
        dot_git = folder / ".git"
        git_dir = _led_to(dot_git) if dot_git.is_file() else dot_git
        common_dir = _common_dir(git_dir)
        if common_dir:
            return Place(folder, git_dir.resolve(), common_dir, bare=False)
        if dot_git.is_file():
            break
        if bare is None and _common_dir(folder):
            bare = Place(folder, folder, folder, bare=True)
    if bare is None:
        raise _none_here(path)
    return bare


def _none_here(path: Path) -> UsageError:
    return UsageError(
        "this is not a git repository, nor inside one.",
        where=shown(str(path)),
        next_="Run from your project, name it with --repo PATH, or start one: git init",
    )


def _led_to(dot_git: Path) -> Path:
    """The folder that a `.git` file names."""
    word, _, named = _text(dot_git).partition(":")
    return dot_git.parent / named.strip() if word == "gitdir" and named.strip() else dot_git


def _common_dir(git_dir: Path) -> Path | None:
    """What all worktrees of `git_dir` share; None where it is no git folder."""
    if head(git_dir) is None:
        return None
    named = _text(git_dir / "commondir").strip()
    common = (git_dir / named).resolve() if named else git_dir.resolve()
    return common if all((common / part).is_dir() for part in ("objects", "refs")) else None


def head(git_dir: Path) -> str | None:
    """What HEAD says, as git writes it; None where there is none."""
    file = git_dir / "HEAD"
    try:
        if file.is_symlink() and str(file.readlink()).startswith("refs/"):
            return f"ref: {file.readlink()}\n"
    except OSError:
        return None
    return _text(file) or None


def _text(file: Path) -> str:
    """A short file's text; empty where it is none: a pipe would keep us waiting."""
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as opened:
            return opened.read(_LONGEST).decode("utf-8", "surrogateescape")
    except OSError:
        return ""
