"""Find what was made in a tree, is ignored by git, and is no run's result: it goes with the box.

`onbox results.at_risk HOME NOTES PLACED TREE` prints `risk RUN FILES BYTES PATH` for each folder
with files that are newer than the first run's begin, of the newest run in that tree; where none
ever began, `holds ignored FILES PATH...` of what is newer than the setup. Exits with 1 if git
fails. NOTES are those of the repository's steps, and PLACED the tree's own.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path

from ..data.link_pushed import pushed_files
from .run_results import RunResults, is_meant, lines_of, placed_paths, runs_of

MOST = 20
FEW = 5
_MADE_BESIDE = re.compile(
    r"(?:.*/)?(?:__pycache__|\.ipynb_checkpoints|[^/]*\.egg-info|\.[^/]*_cache|\.boxstrap-parts)/.*"
    r"|build/.*"
)
"""What installers and programs make beside what they read."""


class MadeHere:
    """What somebody made in a tree."""

    def __init__(self, notes: str, tree: str, venv: str, runs: list[RunResults]) -> None:
        self._tree, self._runs = tree, runs
        self._venv = os.path.relpath(os.path.join(tree, venv), tree)
        self._environments: dict[str, bool] = {}
        self._since = min((run.begun for run in runs), default=0)
        if not runs and not os.path.exists(f"{notes}/repo.adopted"):
            self._since = max(map(_modified, (f"{notes}/repo.root", f"{notes}/prepare.ok")))

    def size(self, path: str) -> int:
        """Return the bytes of a file that was made here and is no result; -1 for another one."""
        if _MADE_BESIDE.fullmatch(path) or path.startswith(f"{self._venv}/"):
            return -1
        if any(f"{path}/".startswith(f"{one}/") for run in self._runs for one in run.paths):
            return -1
        if any(is_meant(one, path) for run in self._runs for one in run.let_go):
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


def _modified(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0


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
    """Return a path as a word for a shell, on one line."""
    return shlex.quote(path if path.isprintable() else ascii(path)[1:-1])


def tell(*words: object) -> None:
    """Print a line."""
    sys.stdout.write("\t".join(map(str, words)) + "\n")


class Tree:
    """A tree, and its runs that have begun."""

    def __init__(self, home: str, notes: str, placed: str, tree: str) -> None:
        self._home, self._notes, self._placed, self.tree = home, notes, placed, tree
        self.runs = [run for run in runs_of(home) if run.tree == tree]
        # Of a later node nothing is to come, unless the profile says `results_of: all`.
        self.is_of_later_node = any(
            lines_of(f"{run.path}/nodes/rank")[:1] not in ([], ["0"]) for run in self.runs
        )

    def made(self) -> dict[str, int]:
        """Return bytes by path of what was made. Raises OSError if git fails."""
        look = ("ls-files", "--others", "--ignored", "-z")
        names = placed_paths(self._placed, self.tree, *look, "--exclude-per-directory=.gitignore")
        if not names:
            return {}
        venv = "".join(lines_of(f"{self._notes}/python.venv")[:1]) or ".venv"
        made = MadeHere(self._notes, self.tree, venv, self.runs)
        found = {path: size for path in names if (size := made.size(path)) >= 0}
        came: Iterable[str] = map(
            str, pushed_files(Path(self._home, "data"), Path(self.tree), unchanged=True)
        )
        data = f"{self.tree}/.git/info/exclude"  # the profile's, by name
        if found and os.path.exists(data) and not os.path.exists(f"{self._notes}/repo.adopted"):
            by_name = placed_paths(self._placed, self.tree, *look, f"--exclude-from={data}")
            came = chain(came, by_name)
        for path in came:
            found.pop(path, None)
        return found

    def risks(self) -> list[tuple[str, int, int, str]]:
        """Return the newest run, and files, bytes and path of each folder that goes with the box,
        the largest first; nothing where no run began. Raises OSError if git fails."""
        if not self.runs or self.is_of_later_node or not (found := self.made()):
            return []
        tracked = placed_paths(self._placed, self.tree, "ls-files", "-z")
        above = {os.path.dirname(path) for path in tracked}
        above.update(str(one) for folder in list(above) for one in Path(folder).parents)
        folders: dict[str, list[int]] = {}
        for path, size in found.items():
            folders.setdefault(folder_of(path, above), []).append(size)
        newest = max(self.runs, key=lambda run: run.begun).name
        most = sorted(folders.items(), key=lambda one: (-sum(one[1]), one[0]))[:MOST]
        return [(newest, len(sizes), sum(sizes), told(path)) for path, sizes in most]


def main() -> int:
    """Print what is at risk."""
    tree = Tree(*sys.argv[1:])
    try:
        for row in tree.risks():
            tell("risk", *row)
        if not tree.runs and (found := tree.made()):
            tell("holds", "ignored", len(found), *map(told, sorted(found)[:FEW]))
    except OSError:
        return 1
    return 0
