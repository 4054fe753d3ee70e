"""Which of a box's files are taken in one round: pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bootstrap.protocol.results import CLOSED, BoxFile

AHEAD = 256 * 10**6
"""Bytes that are read ahead, while their files are not known to be complete."""
_SMALL = 10_000
"""Bytes that a smaller file counts as there."""


def chosen(wanted: Sequence[BoxFile], at_once: int | None) -> Sequence[BoxFile]:
    """What is complete, of more than `at_once` bytes the newest; else what is read ahead."""
    complete = [file for file in wanted if not file.why]
    if at_once is not None:
        complete = _some(complete, at_once, lambda file: -file.modified)
    return complete or _some(_closed(wanted), AHEAD, lambda file: file.size)


def _closed(files: Sequence[BoxFile]) -> list[BoxFile]:
    """What may be complete in a moment, and is the same until then, or shows that it isn't."""
    units = {file.unit for file in files if file.why == CLOSED}
    units -= {file.unit for file in files if file.why in {"young", "held"}}
    return [file for file in files if file.unit in units]


def _some(files: list[BoxFile], most: int, order: Callable[[BoxFile], int]) -> list[BoxFile]:
    """The first in that order, not more than so many bytes, but at least one; units whole."""
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
