"""Find what was made in a tree, is ignored by git, and is no run's result: it goes with the box.

It is newer than the first run's begin there or, where none ever began, than the setup.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from pathlib import Path

from ..git import BoxTree
from ..run_folder import RunFolder
from .run_results import RunResults, is_meant, is_named, runs_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # slow to import
    from collections.abc import Collection, Iterator
    from typing import Any

MOST = 20
FEW = 5
MADE_BESIDE = re.compile(
    r"(?:.*/)?(?:__pycache__|\.ipynb_checkpoints|[^/]*\.egg-info|\.[^/]*_cache|\.boxstrap-parts)/.*"
    r"|build/.*|(?:.*/)?[^/]*(?:version\.py|\.(?:cpython-[^/]+|abi3)\.so)"
)
"""What installers and programs make beside what they read; a version is written by setuptools_scm
and hatch-vcs, and modules in C are built by an install of the tree itself."""


class MadeHere:
    def __init__(self, notes: str, tree: str, venv: str, runs: list[RunResults]) -> None:
        self._tree, self._runs = tree, runs
        venv = os.path.relpath(os.path.join(tree, venv), tree)
        self._others = (f"{venv}/", *(f"{one}/" for run in runs for one in run.paths))
        """Folders of the environment and of results."""
        self._let_go = {one for run in runs for one in run.let_go}
        self._environments: dict[str, bool] = {}
        self._since = min((run.begun for run in runs), default=0)
        if not runs and not os.path.exists(f"{notes}/repo.adopted"):
            made = map(RunFolder(notes).stat, ("repo.root", "prepare.ok"))
            self._since = max(one.st_mtime_ns if one else 0 for one in made)

    def files(self) -> Iterator[str]:
        """Yield the paths in the tree, but for those in these folders and in git's."""
        for place, folders, names in os.walk(self._tree):
            below = f"{place}/"[len(self._tree) + 1 :]
            own = (name for name in folders if name != ".git")
            folders[:] = [n for n in own if not f"{below}{n}/".startswith(self._others)]
            yield from (f"{below}{name}" for name in names)

    def size(self, path: str) -> int:
        """Return the bytes of a file that was made here and is no result; -1 for another one."""
        if f"{path}/".startswith(self._others) or MADE_BESIDE.fullmatch(path):
            return -1
        if any(is_meant(one, path) for one in self._let_go):
            return -1
        try:
            found = os.lstat(os.path.join(self._tree, path))
        except OSError:
            return -1
        changed = max(found.st_mtime_ns, found.st_ctime_ns) if self._runs else found.st_mtime_ns
        if not stat.S_ISREG(found.st_mode) or changed <= self._since or self._is_installed(path):
            return -1
        return found.st_size

    def _is_installed(self, path: str) -> bool:
        """Return whether a file is of an environment: one of conda, or of Python."""
        folder = os.path.dirname(path)
        if folder not in self._environments:
            place = os.path.join(self._tree, folder)
            is_one = any(os.path.exists(f"{place}/{name}") for name in ("pyvenv.cfg", "conda-meta"))
            self._environments[folder] = bool(folder) and (is_one or self._is_installed(folder))
        return self._environments[folder]


def folder_of(path: str, tracked: Collection[str]) -> str:
    """Return the highest folder above a file that has nothing tracked, with a slash; else itself.

    `tracked`: folders with something tracked."""
    parts = path.split("/")
    for end in range(1, len(parts)):
        folder = "/".join(parts[:end])
        if folder not in tracked:
            return f"{folder}/"
    return path


def told(path: str) -> str:
    """Return a path as a word for bash, on one line."""
    if path.isprintable():
        return shlex.quote(path)
    each = (c if c.isprintable() and c not in "'\\" else os.fsencode(c) for c in path)
    words = (c if isinstance(c, str) else "".join(f"\\x{byte:02x}" for byte in c) for c in each)
    return f"$'{''.join(words)}'"


def not_pushed(tree: BoxTree, paths: Collection[str]) -> list[str]:
    """Return the paths without those that `push` brought and that are as it left them; in a tree
    beside, without links to the same path of the main tree."""
    if tree.number != "1":
        real, (here, first) = os.path.realpath, (tree.path, tree.path.rpartition("@")[0])
        return [path for path in paths if real(f"{here}/{path}") != real(f"{first}/{path}")]
    from ..data.records import pushed_files  # late: few boxes have any

    records, main = Path(tree.home, "data"), Path(tree.path)
    came = {str(path) for path in pushed_files(records, main, unchanged=True)} if paths else ()
    return [path for path in paths if path not in came]


def new_work(tree: BoxTree, paths: Collection[str]) -> list[str]:
    """Return the paths without what `push` brought, and what the user lets go of by its name, or as
    a result by a pattern, which is not meant for anybody's new code."""
    runs = [run for run in runs_of(tree.home) if run.tree == tree.path and run.let_go]

    def is_let_go(path: str) -> bool:
        named = (is_named(one, path) for run in runs for one in run.let_go)
        place = os.path.realpath(f"{tree.path}/{path}")
        return any(named) or any(run.lets_go(path) and run.covers(place) for run in runs)

    return [path for path in not_pushed(tree, paths) if not is_let_go(path)]


class Tree:
    """A tree, and its runs that have begun."""

    def __init__(self, tree: BoxTree) -> None:
        self._tree = tree
        self.runs = [run for run in runs_of(tree.home) if run.tree == tree.path]
        # Of a later node nothing is to come, unless the profile says `results_of: all`.
        self.is_of_later_node = any(run.is_later_node for run in self.runs)

    def made(self) -> dict[str, int]:
        """Return bytes by path of what was made. Raises OSError if git fails."""
        tree, look = self._tree, ("ls-files", "--others", "--ignored", "-z")
        made = MadeHere(tree.steps, tree.path, tree.note("python.venv") or ".venv", self.runs)
        found = {path: size for path in made.files() if (size := made.size(path)) >= 0}
        if not found:
            return {}
        names = tree.placed.paths(*look, "--exclude-per-directory=.gitignore")
        found = {path: found[path] for path in names if path in found}
        data = f"{tree.path}/.git/info/exclude"  # the profile's, by name
        if found and os.path.exists(data) and not os.path.exists(f"{tree.steps}/repo.adopted"):
            for path in tree.placed.paths(*look, f"--exclude-from={data}"):
                found.pop(path, None)
        return {path: found[path] for path in not_pushed(tree, found)}

    def risks(self) -> list[dict[str, Any]]:
        """Tell of each folder that goes with the box, the largest first, by the newest run; nothing
        where no run began. Raises OSError if git fails."""
        if not self.runs or self.is_of_later_node or not (found := self.made()):
            return []
        above = {os.path.dirname(path) for path in self._tree.placed.paths("ls-files", "-z")}
        above.update(str(one) for folder in list(above) for one in Path(folder).parents)
        folders: dict[str, list[int]] = {}
        for path, size in found.items():
            folders.setdefault(folder_of(path, above), []).append(size)
        newest = max(self.runs, key=lambda run: run.begun).name
        most = sorted(folders.items(), key=lambda one: (-sum(one[1]), one[0]))[:MOST]
        about = {"kind": "risk", "run": newest}
        return [
            {**about, "path": told(path), "files": len(sizes), "bytes": sum(sizes)}
            for path, sizes in most
        ]
