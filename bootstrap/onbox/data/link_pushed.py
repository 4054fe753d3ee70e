"""Files that were pushed into a repository's main tree, by the records of pushes. In a tree beside
each gets a link of its own, so that what a run writes next to them stays in its tree. What is there
already stays.
"""

from __future__ import annotations

import json
import os
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


def missing_links(records: str, main: str, tree: str) -> list[tuple[str, str]]:
    """Return link and file of each that is not linked in a tree. A linked folder has all of its
    files."""
    folders: dict[Path, bool] = {}
    missing, inside = [], Path(tree).resolve()
    for name in pushed_files(Path(records), Path(main).resolve()):
        link = inside / name
        if link.parent not in folders:
            real = link.parent.resolve()
            folders[link.parent] = inside in (real, *real.parents)
        if folders[link.parent] and not os.path.lexists(link):
            missing.append((os.fspath(link), os.fspath(Path(main).resolve() / name)))
    return missing
