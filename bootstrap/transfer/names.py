"""Names of files that a box chose: which of them may be made here. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

PARTS = ".boxstrap-parts"
"""The folder of files that have not come whole yet, in the folder into which they come."""
MANIFEST = "boxstrap-manifest.json"
"""Says, in the folder of a run's results, what came."""
LONGEST_NAME = 255
"""Bytes of one part of a path: what file systems take."""
LONGEST_PATH = 2048
"""Bytes. Less than what systems take of the whole path, in a folder that has a name too."""
DEEPEST = 64

_UNSHOWN = {
    "Cc": "a control character",
    "Cs": "no UTF-8",
    "Zl": "a line break",
    "Zp": "a line break",
}
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""What some file systems leave out when they compare names."""
_GIT = re.compile(r"\.git[ .]*|git~[0-9]+", re.IGNORECASE)
"""A folder of that name is obeyed by git, also as these file systems spell it."""


def why_refused(path: str) -> str:
    """Why no file here gets this name; "" where one may. `path` is relative, with slashes."""
    if not path or path.startswith("/"):
        return "is no path below a folder"
    if len(path.encode("utf-8", "replace")) > LONGEST_PATH:
        return f"is longer than {LONGEST_PATH:,} bytes"
    parts = path.split("/")
    if len(parts) > DEEPEST:
        return f"lies more than {DEEPEST} folders deep"
    if _spelled(parts[0]) == PARTS or _spelled(path) == MANIFEST:
        return "is a name of boxstrap's own"
    return _why_wrong(path) or next(filter(None, map(_why_part_refused, parts)), "")


def _spelled(name: str) -> str:
    """As file systems compare it that know no case."""
    return _IGNORED.sub("", name).casefold()


def _why_wrong(path: str) -> str:
    if path.isascii() and path.isprintable():
        return ""
    for character in path:
        kind = _UNSHOWN.get(unicodedata.category(character))
        if kind:
            return (
                f"has {kind} in its name" if kind != "no UTF-8" else "has a name that is no UTF-8"
            )
    if _DIRECTION.search(path):
        return "has a mark in its name that turns the direction of text"
    return ""


def _why_part_refused(part: str) -> str:
    if part in ("", ".", ".."):
        return "has a part that is no name"
    if len(part.encode()) > LONGEST_NAME:
        return f"has a name longer than {LONGEST_NAME} bytes"
    if _GIT.fullmatch(_IGNORED.sub("", part)):
        return "has a part that git would obey"
    return ""


def name_beside(path: str, run: str, number: int) -> str:
    """Another name in the same folder, for what came from `run`: `model.from-train-2.pt`."""
    folder, slash, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    more = f".from-{run}" if number == 1 else f".from-{run}.{number}"
    room = LONGEST_NAME - len(f"{more}{dot}{ending}".encode())
    stem = stem.encode()[: max(1, room)].decode("utf-8", "ignore")
    return f"{folder}{slash}{stem}{more}{dot}{ending}"


def lie_in_more_folders(paths: Iterable[str], most: int) -> bool:
    """Whether these lie in more folders than that: each takes room, and no size tells of it."""
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
        if len(found) > most:
            return True
    return False
