"""The tags that describe a commit: tools that derive a version from git need them on the box."""

from __future__ import annotations

import base64
from typing import NamedTuple

from bootstrap.repo.git import GitError, run_git
from bootstrap.repo.local import LocalRepository
from bootstrap.repo.names import decoded, shown

_MOST = 40
"""How many tags are sent, the newest first: a repository may have thousands."""
_MOST_BYTES = 16 * 1024
"""Limit for the packed objects of annotated tags: they are part of the script."""
_DESCRIBES: tuple[tuple[str, ...], ...] = ((), ("--match", "*[0-9]*"), ("--match", "v[0-9]*"))
_ROW = "%(objecttype) %(*objecttype) %(objectname) %(*objectname) %(refname:strip=2)"


class Tags(NamedTuple):
    """The tags of a commit: a row `ID COMMIT NAME` each, and a pack of the annotated ones."""

    rows: tuple[str, ...] = ()
    objects: str = ""
    """In base64; "" if none is annotated."""


def find_tags(here: LocalRepository) -> Tags:
    """Return those that `git describe` may find from the commit; none if git can't tell."""
    try:
        if not _list(here, "--count=1"):
            return Tags()
        found = _list(here, "--merged", here.commit, "--sort=-creatordate", f"--count={_MOST + 1}")
        if len(found) > _MOST:
            nearest = {name for words in _DESCRIBES for name in _nearest(here, words)}
            far = [name for name in nearest if name not in found]
            found = _list(here, *(f"refs/tags/{name}" for name in far)) | found if far else found
            found = dict([*found.items()][:_MOST])
        annotated = [row.split(" ")[0] for row in found.values() if _is_annotated(row)]
        while annotated and len(pack := _pack(here, annotated)) > _MOST_BYTES:
            annotated = annotated[: len(annotated) // 2]
    except GitError:
        return Tags()
    packed = {*annotated}
    rows = [row for row in found.values() if not _is_annotated(row) or row.split(" ")[0] in packed]
    return Tags(tuple(rows), base64.b64encode(pack).decode() if annotated else "")


def _list(here: LocalRepository, *words: str) -> dict[str, str]:
    """Return the rows of tags of commits by name, in git's order."""
    patterns = [] if any(word.startswith("refs/tags/") for word in words) else ["refs/tags"]
    printed = run_git(here.folders, "for-each-ref", f"--format={_ROW}", *words, *patterns)
    found = {}
    for line in decoded(printed).split("\n")[:-1]:  # a name may hold what else ends a line
        kind, of, tag, commit, name = line.split(" ", 4)
        if "commit" in (kind, of) and shown(name) == name:
            found[name] = f"{tag} {commit or tag} {name}"
    return found


def _is_annotated(row: str) -> bool:
    tag, commit, _ = row.split(" ", 2)
    return tag != commit


def _nearest(here: LocalRepository, words: tuple[str, ...]) -> list[str]:
    """Return the nearest tag of any kind, and the nearest annotated one."""
    found = []
    for kind in (("--tags",), ()):
        command = ("describe", *kind, *words, "--abbrev=0", here.commit)
        found.append(decoded(run_git(here.folders, *command, ok=(0, 128))).strip())
    return [name for name in found if name]


def _pack(here: LocalRepository, tags: list[str]) -> bytes:
    """Pack these objects alone, the same way each time: the pack is part of the script's id."""
    options = ("--stdout", "-q", "--threads=1", "--window=0", "--no-reuse-object")
    return run_git(
        here.folders, "pack-objects", *options, stdin="".join(f"{t}\n" for t in tags).encode()
    )
