"""Check names of files that a box chose, before a file gets one here. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from bootstrap.repo.names import IGNORED, is_gits

PARTS = ".boxstrap-parts"
"""The folder of incomplete files, inside the folder that receives them."""
MANIFEST = "boxstrap-manifest.json"
"""The file in the folder of a run's results that lists what was pulled."""
RECORD = "boxstrap-run"
"""The folder beside a run's results with its log and record; with a number if that is another's."""
LONGEST_NAME = 255
"""Bytes of one part of a path: the limit of file systems."""
LONGEST_PATH = 2048
"""Bytes. Less than the limit for a whole path, since the folder has a path too."""
DEEPEST = 64

_UNSHOWN = {
    "Cc": "a control character",
    "Cs": "no UTF-8",
    "Zl": "a line break",
    "Zp": "a line break",
}
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_OWN = re.compile(rf"{re.escape(PARTS)}|{RECORD}(-[0-9]+)?")


def why_refused(path: str) -> str:
    """Return why no file here may have this name, or "". `path` is relative, with slashes."""
    if not path or path.startswith("/"):
        return "is not a relative path"
    if len(path.encode("utf-8", "replace")) > LONGEST_PATH:
        return f"is longer than {LONGEST_PATH:,} bytes"
    parts = path.split("/")
    if len(parts) > DEEPEST:
        return f"lies more than {DEEPEST} folders deep"
    if _OWN.fullmatch(_spelled(parts[0])) or _spelled(path) == MANIFEST:
        return "is a name of boxstrap's own"
    return _why_wrong(path) or next(filter(None, map(_why_part_refused, parts)), "")


def _spelled(name: str) -> str:
    """Return the name as case-insensitive file systems compare it."""
    return IGNORED.sub("", name).casefold()


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
        return "has a character in its name that changes the text direction"
    return ""


def _why_part_refused(part: str) -> str:
    if part in ("", ".", ".."):
        return "has an empty part, or . or .. as one"
    if len(part.encode()) > LONGEST_NAME:
        return f"has a name longer than {LONGEST_NAME} bytes"
    if is_gits(part):
        return "has a part that git would obey"
    return ""


def name_beside(path: str, run: str, number: int) -> str:
    """Return another name in the same folder, for a file of `run`: `model.from-train-2.pt`."""
    folder, slash, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    more = f".from-{run}" if number == 1 else f".from-{run}.{number}"
    room = LONGEST_NAME - len(f"{more}{dot}{ending}".encode())
    stem = stem.encode()[: max(1, room)].decode("utf-8", "ignore")
    return f"{folder}{slash}{stem}{more}{dot}{ending}"


def has_more_folders(paths: Iterable[str], most: int) -> bool:
    """Whether these are in more than `most` folders: each takes room that no size counts."""
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
        if len(found) > most:
            return True
    return False
