"""Which repository of a box is meant, and which folder is its own.

`steps/KEY` notes for each one: `repo.root`, the first commit of its main line; `repo.dir`, its
folder; `repo.key`, the key that it has here, if somebody else calls it KEY.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..git import BoxGit
from ..run_folder import RunFolder, lines_of, names_in


def find_repository(home: str, key: str, root: str, name: str) -> tuple[str, str]:
    """Return its key here, and its folder. Equal first commits mean one repository, from whichever
    client; if a first commit is not known (""), the key decides."""
    own = _note(home, key, "repo.key") or key
    if root and (known := _root(home, own)) != root:
        own = f"{key.rpartition('-')[0]}-{root[:8]}" if known else key
        others = (each for each in _keys(home) if each != key and _root(home, each) == root)
        own = next(others, own)
    folder = f"{os.path.dirname(home)}/{name or key.rpartition('-')[0]}"
    if known := _note(home, own, "repo.dir"):
        return own, known
    is_taken = any(_note(home, each, "repo.dir") == folder for each in _keys(home))
    # A tree of boxstrap's without a note: from an earlier box that had this volume.
    is_taken |= bool(root) and placed_by_us(folder) and root_of(f"{folder}/.git").strip() != root
    return own, f"{folder}-{own.rpartition('-')[2][:4]}" if is_taken else folder


def _note(home: str, key: str, name: str) -> str:
    return RunFolder(f"{home}/steps/{key}").first(name)


def _keys(home: str) -> Iterator[str]:
    for name in names_in(f"{home}/store"):
        if name.endswith(".git"):
            yield name[: -len(".git")]
    yield from (*names_in(f"{home}/steps"), *names_in(f"{home}/runs"))


def _root(home: str, key: str) -> str:
    """Return what is known of its first commit, also if its note is lost."""
    if known := _note(home, key, "repo.root"):
        return known
    folders = [f"{home}/store/{key}.git", f"{_note(home, key, 'repo.dir')}/.git"]
    return next(map(root_of, filter(os.path.isdir, folders)), "").strip()


def root_of(git_folder: str) -> str:
    """Return the first commit of the main line of what was sent, as a line; "" if the history is
    shallow."""
    git = BoxGit(git_folder)
    if not os.path.isdir(git_folder) or os.path.isfile(f"{git_folder}/shallow"):
        return ""
    sent = git.run("for-each-ref", "--count=1", "--format=%(objectname)", "refs/boxstrap").output
    words = ("rev-list", "--first-parent", "--max-parents=0", os.fsdecode(sent).strip() or "HEAD")
    return os.fsdecode(git.run(*words, "--").output)


def placed_by_us(folder: str) -> bool:
    mark = "refs/boxstrap/placed"
    packed = (line.partition(" ")[2] for line in lines_of(f"{folder}/.git/packed-refs"))
    return os.path.exists(f"{folder}/.git/{mark}") or mark in packed
