"""Draw a finished run from its recorded events, as one SVG.

It has no scripts, no fonts and nothing else to fetch, so it shows wherever a README is shown.
Each step has its line of the timeline and, next to it, a bar for the time in which it ran: bars of
steps that ran at the same time overlap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from bootstrap.sanitize import sanitize
from bootstrap.steps.events import Event
from bootstrap.steps.plan import NAMES
from bootstrap.ui.layout import UNICODE, step_line
from bootstrap.ui.steps import StepRow, Steps

_COLUMNS = 72
_CHAR, _LINE, _SIZE = 8.4, 21, 14  # pixels: a character's width, a line's height, the font
_MARGIN, _TOP = 18, 42
_BARS = 200  # pixels, the width of the whole run
_MOST_WORDS = 40  # lines below the steps
_COLOURS = {
    "": "#d7dae0",
    "dim": "#7f8794",
    "cyan": "#56b6c2",
    "green": "#98c379",
    "yellow": "#e5c07b",
    "red": "#e06c75",
}
_HARD_SPACE = "\u00a0"
_STYLE = {"waiting": "dim", "ok": "green", "skipped": "dim", "warned": "yellow", "failed": "red"}


def draw(
    events: Iterable[Event], words: str = "", *, title: str = "boxstrap", price: float | None = None
) -> str:
    """The SVG of a run: its steps as they ended, then `words`; `price` in dollars an hour."""
    steps = Steps(now=lambda: 0.0)
    for event in events:
        steps.take(event)
    rows = sorted(steps.rows.values(), key=lambda row: NAMES.index(row.step))
    if steps.setup.seconds is not None:
        rows.append(steps.setup)
    below = sanitize(words).splitlines()[:_MOST_WORDS]
    width = _MARGIN * 2 + _COLUMNS * _CHAR + _BARS
    widest = max((len(each) for each in [title, *below]), default=0)
    width = round(max(width, _MARGIN * 2 + widest * _CHAR))
    height = _TOP + (len(rows) + len(below) + (1 if below else 0)) * _LINE + _MARGIN
    body = [
        *_window(width, height, title),
        *_rows(rows, steps.setup, price),
        *_words(below, _TOP + (len(rows) + 1) * _LINE),
    ]
    return "\n".join([_head(width, height, title), *body, "</svg>\n"])


def _head(width: int, height: int, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" '
        f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" '
        f'font-size="{_SIZE}">\n<title>{escape(sanitize(title))}</title>'
    )


def _window(width: int, height: int, title: str) -> list[str]:
    return [
        f'<rect width="{width}" height="{height}" rx="8" fill="#1e2127"/>',
        _text(_MARGIN, 24, f"$ {sanitize(title)}", "dim"),
    ]


def _rows(rows: Sequence[StepRow], setup: StepRow, price: float | None) -> list[str]:
    start, length = setup.started or 0.0, _length(rows, setup)
    drawn: list[str] = []
    for number, row in enumerate(rows):
        y = _TOP + number * _LINE + _SIZE
        x = float(_MARGIN)
        for part in step_line(row, _COLUMNS, UNICODE, seconds=row.seconds, price=price):
            if part.text.strip():
                drawn.append(_text(x, y, part.text, part.colour))
            x += len(part.text) * _CHAR
        if row.started is not None and row.seconds is not None and row is not setup:
            left = _MARGIN + _COLUMNS * _CHAR + 8 + (row.started - start) / length * (_BARS - 8)
            long = max(2.0, row.seconds / length * (_BARS - 8))
            drawn.append(
                f'<rect x="{left:.1f}" y="{y - 9}" width="{long:.1f}" height="8" rx="2" '
                f'fill="{_COLOURS[_STYLE.get(row.state, "cyan")]}"/>'
            )
    return drawn


def _length(rows: Sequence[StepRow], setup: StepRow) -> float:
    ends = [row.started + row.seconds for row in rows if row.started is not None and row.seconds]
    return max([0.001, *(end - (setup.started or 0.0) for end in ends)])


def _words(lines: Sequence[str], top: int) -> list[str]:
    return [
        _text(_MARGIN, top + number * _LINE + _SIZE, each, "")
        for number, each in enumerate(lines)
        if each.strip()
    ]


def _text(x: float, y: int, text: str, colour: str) -> str:
    # textLength and hard spaces keep the columns aligned in any font.
    width = len(text) * _CHAR
    return (
        f'<text x="{x:.1f}" y="{y}" fill="{_COLOURS[colour]}" textLength="{width:.1f}" '
        f'lengthAdjust="spacingAndGlyphs">{escape(text).replace(" ", _HARD_SPACE)}</text>'
    )
