"""Link files that were pushed into a repository's main tree into a tree beside it.

usage: onbox data.link_pushed link|check RECORDS MAIN TREE
RECORDS is the folder with the records of pushes. Each file gets a link of its own, so that what a
run writes next to them stays in its tree. What is in the tree already stays. `check` only looks,
and ends with 1 if a link is missing.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path


def pushed_files(records: Path, main: Path, *, unchanged: bool = False) -> Iterator[Path]:
    """Yield the pushed files below `main` that are there, relative to it."""
    seen = set()
    for record in sorted(records.glob("*.jsonl")):
        folder = None
        with record.open("rb") as lines:
            for line in lines:
                try:
                    row = json.loads(line)
                except ValueError:  # a line that was cut off
                    continue
                if isinstance(row, dict):
                    folder = Path(str(row.get("target", "")))
                    if main not in (folder, *folder.parents):
                        break
                elif folder is not None and row:
                    file = folder / str(row[0])
                    if file in seen or not file.is_file():
                        continue
                    if unchanged and [file.stat().st_size, file.stat().st_mtime_ns] != row[1:3]:
                        continue  # a later line may know it
                    seen.add(file)
                    yield file.relative_to(main)


def missing_links(records: Path, main: Path, tree: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the link and the file of each that is missing. A linked folder has all of its files."""
    folders: dict[Path, bool] = {}
    for name in pushed_files(records, main):
        link = tree / name
        inside = folders.get(link.parent)
        if inside is None:
            real = link.parent.resolve()
            inside = folders[link.parent] = tree in (real, *real.parents)
        if inside and not os.path.lexists(link):
            yield link, main / name


def main() -> int:
    word, records, *folders = sys.argv[1:]
    main_tree, tree = (Path(folder).resolve() for folder in folders)
    missing = missing_links(Path(records), main_tree, tree)
    if word == "check":
        return int(any(True for _ in missing))
    for link, file in list(missing):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    return 0
