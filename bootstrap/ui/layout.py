"""Lay out a step in one line of a given width, and rows in columns. Pure; ASCII and marks only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bootstrap.text import sizes
from bootstrap.ui.steps import FAILED, OK, RUNNING, SKIPPED, WAITING, WARNED, StepRow
from bootstrap.ui.terminal import Marks

COLOURS = {
    WAITING: "dim",
    RUNNING: "cyan",
    OK: "green",
    SKIPPED: "dim",
    WARNED: "yellow",
    FAILED: "red",
}
_NAME = 9  # "preflight"
_TIME = 10  # "3 min 05 s"
_PRICE = 9
_WIDE_ENOUGH_FOR_PRICE = 60
_WIDE_ENOUGH_FOR_BAR = 88
_BAR = 16


class Part(NamedTuple):
    """A piece of a line and its colour's name; "" is the terminal's default colour."""

    text: str
    colour: str = ""


def line(  # noqa: PLR0913 - a line is made of these
    row: StepRow,
    width: int,
    marks: Marks,
    *,
    seconds: float | None,
    price: float | None = None,
    turn: int = 0,
) -> list[Part]:
    """Lay out the row in exactly `width` columns (40 or more); `price` is in dollars an hour.

    `turn` counts the frames and turns the spinner of a running step.
    """
    colour = COLOURS[row.state]
    mark = marks.spinner[turn % len(marks.spinner)] if row.state == RUNNING else marks.of[row.state]
    quiet = colour if row.state in {WAITING, SKIPPED} else ""
    head = [Part(f" {mark} ", colour), Part(f"{row.step:<{_NAME}}  ", quiet)]
    end = _end(seconds, price if width >= _WIDE_ENOUGH_FOR_PRICE else None)
    room = width - 3 - _NAME - 2 - len(end)
    return [*head, *_middle(row, room, width, marks), Part(end, "dim")]


def fit(wordings: Sequence[str], room: int, cut: str) -> str:
    """Return the longest wording that fits, padded; if none fits, the shortest is cut."""
    for words in wordings:
        if len(words) <= room:
            return words.ljust(room)
    words = wordings[-1] if wordings else ""
    return (words[: max(0, room - 1)] + cut)[:room].ljust(room)


def _middle(row: StepRow, room: int, width: int, marks: Marks) -> list[Part]:
    parts: list[Part] = []
    share = row.progress.share if row.state == RUNNING else None
    if share is not None and width >= _WIDE_ENOUGH_FOR_BAR:
        full = round(share * _BAR)
        parts = [Part(marks.bar * full, "cyan"), Part(marks.rest * (_BAR - full), "dim")]
        parts.append(Part("  "))
        room -= _BAR + 2
    colour = COLOURS[row.state] if row.state in {FAILED, WARNED, SKIPPED} else ""
    return [*parts, Part(fit(row.words(), room, marks.cut), colour)]


def _end(seconds: float | None, price: float | None) -> str:
    time = "" if seconds is None else sizes.duration(seconds)
    end = f"  {time:>{_TIME}}"
    if price is None:
        return end
    return f"{end}{sizes.spent_in_words(seconds, price):>{_PRICE}}"


def aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Make a line for each row, with its cells aligned in columns."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
