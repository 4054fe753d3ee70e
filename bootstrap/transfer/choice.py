"""Choose which of a box's files are pulled in one round. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bootstrap.protocol.results import CLOSED, BoxFile

AHEAD = 256 * 10**6
"""Bytes that are read ahead of files not yet known to be complete."""
_SMALL = 10_000
"""Bytes: a smaller file counts as this many."""


def chosen(wanted: Sequence[BoxFile], at_once: int | None) -> Sequence[BoxFile]:
    """Return the complete files (the newest if over `at_once` bytes), else those to read ahead."""
    complete = [file for file in wanted if not file.why]
    if at_once is not None:
        complete = _some(complete, at_once, lambda file: -file.modified)
    return complete or _some(_closed(wanted), AHEAD, lambda file: file.size)


def _closed(files: Sequence[BoxFile]) -> list[BoxFile]:
    """Return files that may soon count as complete, and whose times would show a change."""
    units = {file.unit for file in files if file.why == CLOSED}
    units -= {file.unit for file in files if file.why in {"young", "held"}}
    return [file for file in files if file.unit in units]


def _some(files: list[BoxFile], most: int, order: Callable[[BoxFile], int]) -> list[BoxFile]:
    """Return the first files in that order up to `most` bytes: whole units, at least one."""
    units: dict[str, list[BoxFile]] = {}
    for file in sorted(files, key=order):
        units.setdefault(file.unit, []).append(file)
    taken: list[BoxFile] = []
    for unit in units.values():
        most -= sum(max(file.size, _SMALL) for file in unit)
        if taken and most < 0:
            break
        taken += unit
    return taken
