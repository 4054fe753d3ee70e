"""Repositories as files that people read without Python: what `init` finds, and what it writes.

`==== NAME` begins one, `---- PATH` a file of it, `---- no PATH` takes away one that the file's
first part gives to all; `---- = profile` and others hold what is expected.
"""

from collections.abc import Mapping
from pathlib import Path

from tests.cases import parts_of, read_cases

FOLDER = Path(__file__).parent / "unit/profile/repositories"


def read_repositories(pattern: str = "*") -> dict[str, dict[str, str]]:
    """Return the parts of each, by its file's name and its own."""
    found = {}
    for file in sorted(FOLDER.glob(f"{pattern}.txt")):
        (_, usual), *cases = read_cases(file)
        for name, text in cases:
            found[f"{file.stem}: {name}"] = {**parts_of(usual), **parts_of(text)}
            del found[f"{file.stem}: {name}"][""]
    return found


def write_files(parts: Mapping[str, str], root: Path) -> None:
    """Write the files of one."""
    absent = {name.removeprefix("no ") for name in parts if name.startswith("no ")}
    for name in parts.keys() - absent:
        if not name.startswith(("= ", "no ")):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(parts[name], encoding="utf-8")
