"""Remove what a box can do without: results that are at home, their copies and downloads; then each
tree beside a main one that nobody uses and that contains only what was placed, an environment of
ours and caches. `onbox work.clean BOX_HOME REQUEST` tells in lines of JSON what became of each.

The request, a document of JSON: `key` of the only repository, or ""; names of trees that go with
all they hold, `discard`; with `look` nothing is removed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from ..git import BoxTree, trees_beside
from ..results.at_risk import MADE_BESIDE, new_work
from ..results.disposable import disposable, files_of, size_of
from ..results.keep_results import clean_copies
from ..results.run_results import runs_of
from ..run_folder import QUEUED, RUNNING, RunFolder, runs_below
from ..run_processes import left_of
from ..step_report import question
from .made import CHANGED, MADE_BY_TOOLS, edits, held, own_repositories, tell

_CACHES = (*MADE_BY_TOOLS, ".pytest_cache/", ".mypy_cache/", ".ruff_cache/")


def uses(tree: BoxTree) -> Iterator[dict[str, Any]]:
    """Yield what prevents removing the tree, whatever it holds."""
    runs = runs_below(f"{tree.home}/runs")
    for run in runs:
        is_there = f"{run.first('venv')}/".startswith(f"{tree.path}/")
        with suppress(OSError):
            is_there = is_there or os.path.samefile(run.first("dir"), tree.path)
        if is_there and run.state() in (RUNNING, QUEUED):
            yield from held("run", [os.path.basename(run.path)])
            break
    for run in runs:
        if run.first("dir") == tree.path and (left := left_of(run)):
            yield {**next(held("left", [os.path.basename(run.path)])), "count": len(left)}
    if os.path.islink(tree.path):
        yield from held("link", [os.readlink(tree.path)])
    real = os.path.realpath(tree.path)
    for line in RunFolder("/proc/self").lines("mountinfo") or []:
        point = "".join(line.split(" ")[4:5])
        if f"{point}/".startswith(f"{real}/"):
            yield from held("mount", [point])


def contents(tree: BoxTree, going: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield what somebody made there, but for the files in `going`. Raises OSError if git can't
    tell."""
    if not os.path.isfile(f"{tree.placed.folder}/index"):
        raise OSError

    runs = [run for run in runs_of(tree.home) if run.tree == tree.path]
    made = {place: run for run in runs for place in files_of(run)}
    results: dict[str, bool] = {}

    def staying(paths: list[str]) -> list[str]:
        places = {f"{tree.path}/{path}": path for path in paths}
        stay = [place for place in places if place not in going]
        results.update((made[one].name, made[one].is_home()) for one in stay if one in made)
        return [places[one] for one in stay if one not in made]

    yield from held("edits", staying(edits(tree)))
    yield from held("staged", tree.work.paths("diff", "--cached", *CHANGED, "HEAD", "--"))
    heads = tree.work.lines("rev-parse", "-q", "--verify", "HEAD")
    heads += tree.work.lines("for-each-ref", "--format=%(objectname)")
    told = ("rev-list", "--oneline", "--no-abbrev-commit", *heads, "--not", "--all")
    yield from held("commits", tree.placed.lines(*told))
    out = [*_CACHES, *_environments(tree.path)]
    new = ("ls-files", "--others", "-z", *(f"--exclude={one}" for one in out))
    files = staying(new_work(tree, tree.placed.paths(*new)))
    if any(map(MADE_BESIDE.fullmatch, files)):
        look = ("--ignored", "--exclude-per-directory=.gitignore", "-z")
        ignored = {*tree.placed.paths("ls-files", "--others", *look)}
        files = [one for one in files if not (one in ignored and MADE_BESIDE.fullmatch(one))]
    yield from held("files", files)
    for what, is_home in (("unpulled", False), ("pulled", True)):
        yield from held(what, (name for name, at_home in results.items() if at_home is is_home))
    yield from own_repositories(tree)


def _environments(tree: str) -> Iterator[str]:
    """Yield the environments that boxstrap made."""
    for place, folders, files in os.walk(tree):
        path = place[len(tree) :]
        if {"pyvenv.cfg", ".boxstrap"}.issubset(files):
            yield f"{path}/"
        if path.count("/") >= 4:
            folders.clear()


def remove(tree: BoxTree) -> bool:
    """Remove it, out of sight in one step: the next setup removes what a kill leaves of it."""
    aside = f"{tree.home}/trees/{tree.name}-{os.getpid()}"
    os.makedirs(os.path.dirname(aside), exist_ok=True)
    try:
        os.rename(tree.path, aside)
    except OSError:
        return False
    shutil.rmtree(tree.notes, ignore_errors=True)
    subprocess.run(["rm", "-rf", "--one-file-system", "--", aside], check=False)
    for folder in (os.path.dirname(aside), os.path.dirname(tree.notes)):
        with suppress(OSError):  # others are in it
            os.rmdir(folder)
    return not os.path.exists(aside)


def clean(
    tree: BoxTree, discard: Collection[str], going: Mapping[str, int], *, look: bool
) -> Iterator[dict[str, Any]]:
    """Remove a tree unless that loses something; yield what it holds, and what became of it.
    `going`: files, and bytes of each, that would be removed before it."""
    rows = used = list(uses(tree))
    if not used:
        try:
            rows = list(contents(tree, going))
        except OSError:
            rows = list(held("unread", [""]))
    size = size_of(tree.path)
    became = "kept" if rows else "safe"
    if not (look or used) and (not rows or tree.name in discard):
        became = "removed" if remove(tree) else "left"
    first = sum(of for place, of in going.items() if place.startswith(f"{tree.path}/"))
    kib = max(0, size - first) // 1024
    yield from rows
    yield {"kind": "tree", "key": tree.key, "name": tree.name, "became": became, "kib": kib}


def clean_all(
    home: str, key: str, discard: Collection[str], *, look: bool
) -> Iterator[dict[str, Any]]:
    """Yield what became of everything."""
    beside = trees_beside(home)
    trees = [tree for tree in beside if key in ("", tree.key)]
    own = [tree.name for tree in trees]
    for name in (name for name in discard if name not in own):
        others = "".join([tree.key for tree in beside if tree.name == name][:1])
        yield {"kind": "unknown", "name": name, "key": others}
        look = True
    if not os.path.isdir(f"{home}/steps"):
        return
    with open(f"{home}/lock", "ab") as lock:
        try:
            if not look:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield {"kind": "busy"}
            return
        yield {"kind": "copies", "bytes": clean_copies(home, look=look)}
        going: dict[str, int] = {}
        for what, name, size, became, files in disposable(home, key, look=look):
            yield {"kind": "thing", "what": what, "name": name, "bytes": size, "became": became}
            going.update(files if became == "safe" else {})
        for tree in trees:
            yield from clean(tree, discard, going, look=look)


def main() -> None:
    home, asked = question()
    tell(clean_all(home, asked["key"], asked["discard"], look=asked["look"]))
