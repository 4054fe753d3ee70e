"""Find what was made in a tree, is ignored by git, and is no run's result: it goes with the box.

`onbox results.at_risk HOME NOTES TREE VENV` reads three lists, of NUL-separated paths that end with
`/`: what git ignores there, what was pushed or fetched as data, what is tracked. It prints
`risk RUN FILES BYTES PATH` for each folder with files that are newer than the first run's begin, of
the newest run in that tree; where none ever began, `holds ignored FILES PATH...` of what is newer
than the setup. Exits with 1 if a list is cut: git failed.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from .run_results import RunResults, is_meant, lines_of, runs_of

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


def lists_in(text: str) -> Iterator[list[str]]:
    """Yield the lists. Raises ValueError if the last one is cut."""
    found: list[str] = []
    for path in text.split("\0")[:-1]:
        if path == "/":
            yield found
            found = []
        else:
            found.append(path)
    if found:
        raise ValueError("cut")


def told(path: str) -> str:
    """Return a path as a word for a shell, on one line."""
    return shlex.quote(path if path.isprintable() else ascii(path)[1:-1])


def tell(*words: object) -> None:
    """Print a line."""
    sys.stdout.write("\t".join(map(str, words)) + "\n")


def main() -> int:
    """Print what is at risk."""
    home, notes, tree, venv = sys.argv[1:]
    try:
        ignored, fetched, tracked = lists_in(os.fsdecode(sys.stdin.buffer.read()))
    except ValueError:
        return 1
    runs = [run for run in runs_of(home) if run.tree == tree]
    if any(lines_of(f"{run.path}/nodes/rank")[:1] not in ([], ["0"]) for run in runs):
        return 0  # of a later node nothing is to come, unless the profile says `results_of: all`
    made = MadeHere(notes, tree, venv, runs)
    sent = set(fetched)
    sizes = {path: made.size(path) for path in ignored if path not in sent}
    found = {path: size for path, size in sizes.items() if size >= 0}
    if not runs:
        if found:
            tell("holds", "ignored", len(found), *map(told, sorted(found)[:FEW]))
        return 0
    above = {os.path.dirname(path) for path in tracked}
    above.update(str(one) for folder in list(above) for one in Path(folder).parents)
    folders: dict[str, list[int]] = {}
    for path, size in found.items():
        folders.setdefault(folder_of(path, above), []).append(size)
    newest = max(runs, key=lambda run: run.begun).name
    for path, all_of_it in sorted(folders.items(), key=lambda one: -sum(one[1]))[:MOST]:
        tell("risk", newest, len(all_of_it), sum(all_of_it), told(path))
    return 0
