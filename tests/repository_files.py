"""Repositories as files that people read without Python: what `init` finds, and what it writes.

`==== NAME` begins one, `---- PATH` a file of it, `---- no PATH` takes away one that the file's
first part gives to all; `---- = profile` and others hold what is expected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "unit/profile/repositories"


def _parts(text: str) -> dict[str, str]:
    found = re.split(r"^---- (.*)\n", text + "\n", flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def read_repositories(pattern: str = "*") -> dict[str, dict[str, str]]:
    """Return the parts of each, by its file's name and its own."""
    found = {}
    for file in sorted(FOLDER.glob(f"{pattern}.txt")):
        usual, *rest = re.split(r"^==== (.*)\n", file.read_text(), flags=re.MULTILINE)
        for name, text in zip(rest[::2], rest[1::2], strict=True):
            found[f"{file.stem}: {name}"] = {**_parts(usual), **_parts(text)}
    return found


def write_files(parts: Mapping[str, str], root: Path) -> None:
    """Write the files of one."""
    absent = {name.removeprefix("no ") for name in parts if name.startswith("no ")}
    for name in parts.keys() - absent:
        if not name.startswith(("= ", "no ")):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(parts[name], encoding="utf-8")
