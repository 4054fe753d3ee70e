"""Plots as SVG, without scripts or external resources: curves, bars, parallel coordinates."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from bootstrap.sizes import dollars, duration, grouped_number

SIZE, HALF, NARROW = (880, 220), (430, 180), (360, 210)
"""Width and height in pixels: of a full-width plot, of one of two side by side, on a phone."""
_COLOURS = ("#2563ab", "#c4502e", "#2c8a57", "#8a4fb0", "#b0892c", "#3a9aa8", "#b03a6d", "#5d6470")
_DASHES = ("", "6,3", "2,3", "9,3,2,3", "12,5")
"""So that more lines than there are colours can be told apart."""
_GREY = "#b6bac2"
_LETTER, _TEXT_HEIGHT = 6.5, 13
_RIGHT, _TOP, _BOTTOM = 20, 12, 28
_EDGE = 40


@dataclass(frozen=True)
class PlotLine:
    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Plot:
    title: str
    lines: Sequence[PlotLine]
    in_seconds: bool = False  # whether x is time; otherwise it is a count
    top: float | None = None  # the highest possible y
    note: str = ""
    unit: str = ""
    is_half: bool = False

    def drawn(self) -> Markup:
        """Return the plot as HTML, for wide and for narrow screens. Each is drawn in its own size,
        since text that shrinks with its picture can't be read."""
        both = for_two_screens(self.svg(HALF if self.is_half else SIZE), self.svg(NARROW))
        keys = "".join(map(self._key, range(len(self.lines))))
        return both + Markup(f'<ul class="keys">{keys}</ul>')  # noqa: S704 - `_key` escapes

    def _key(self, at: int) -> str:
        colour, dash = _look(at)
        stroke = f'<line x2="20" y1="6" y2="6" stroke="{colour}" stroke-dasharray="{dash}"/>'
        return f'<li><svg viewBox="0 0 20 12">{stroke}</svg> {escape(self.lines[at].name)}</li>'

    def svg(self, size: tuple[int, int]) -> str:
        """Return the plot as SVG without its legend."""
        width, height = size
        lines = [_thinned(line.points, width) for line in self.lines]
        points = [point for line in lines for point in line]
        if not points:
            return _svg(width, height, [_text(width / 2, height / 2, "no data", "middle")])
        across = _Axis([x for x, _ in points])
        up = _Axis([y for _, y in points] + ([] if self.top is None else [0.0, self.top]))
        ticks = [(tick, f"{tick:.4g}{self.unit}") for tick in up.ticks(5)]
        left = 12 + _LETTER * max((len(words) for _, words in ticks), default=0)
        right, bottom = width - _RIGHT, height - _BOTTOM
        guide = f'stroke="{_GREY}" stroke-dasharray="1,3"'
        axes = f'd="M{left:.0f} {_TOP}V{bottom}H{right}" fill="none" stroke="{_GREY}"'
        parts = [f"<path {axes}/>"]
        for tick, words in ticks:
            y = up.place(tick, bottom, _TOP)
            parts += [f'<path d="M{left:.0f} {y:.1f}H{right}" {guide}/>']
            parts += [_text(left - 5, y + 4, words, "end")]
        for tick in across.ticks(width // 100):
            x = across.place(tick, left, right)
            words = (duration(tick) if tick else "0") if self.in_seconds else grouped_number(tick)
            parts += [f'<path d="M{x:.1f} {_TOP}V{bottom}" {guide}/>']
            parts += [_text(x, bottom + 16, words, "middle")]
        for at, line in enumerate(lines):
            colour, dash = _look(at)
            places = (
                f"{across.place(x, left, right):.1f},{up.place(y, bottom, _TOP):.1f}"
                for x, y in line
            )
            stroke = f'stroke="{colour}" stroke-width="1.6" stroke-dasharray="{dash}"'
            if line:
                parts += [f'<path d="M{" ".join(places)}" class="line" fill="none" {stroke}/>']
        return _svg(width, height, parts)


class _Axis:
    def __init__(self, values: Sequence[float]) -> None:
        self.low, self.high = min(values), max(values)
        self._most = max(abs(self.low), abs(self.high)) or 1.0

    def place(self, value: float, first: float, last: float) -> float:
        """Return where a value is between the places of the axis's two ends."""
        # Divided first: the difference of two floats may be none.
        low, high, at = (each / self._most for each in (self.low, self.high, value))
        share = (at - low) / (high - low) if high - low > 1e-12 else 0.5
        return first + share * (last - first)

    def ticks(self, most: int) -> list[float]:
        """Return round numbers on it, about so many; its ends, where there are none to be had."""
        span = self.high - self.low
        if not 1e-300 < span < 1e300 or span < 1e-9 * self._most:
            return [*dict.fromkeys((self.low, self.high))]
        unit = 10.0 ** math.floor(math.log10(span / most))
        step = next(unit * times for times in (1, 2, 5, 10, 20) if span / (unit * times) < most + 1)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def _look(number: int) -> tuple[str, str]:
    colours = len(_COLOURS)
    return _COLOURS[number % colours], _DASHES[number // colours % len(_DASHES)]


def _thinned(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """Return about `most` of the points, the last one among them, with each stretch's extremes."""
    if len(points) <= most:
        return list(points)
    each = -(-2 * len(points) // most)
    kept = []
    for start in range(0, len(points), each):
        part = points[start : start + each]
        kept += sorted({min(part, key=lambda one: one[1]), max(part, key=lambda one: one[1])})
    return [*kept, *([points[-1]] if kept[-1] != points[-1] else [])]


def _svg(width: float, height: float, parts: Sequence[str], look: str = 'font-size="11"') -> str:
    return f'<svg viewBox="0 0 {width} {height}" {look} role="img">{"".join(parts)}</svg>'


def _text(x: float, y: float, words: str, anchor: str, look: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{look}>{escape(words)}</text>'


def for_two_screens(wide: str, narrow: str) -> Markup:
    """Return two drawings, of which the page shows the one that fits."""
    return Markup(  # noqa: S704 - each text in it is escaped
        f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'
    )


def cost_bars(totals: Sequence[tuple[str, float]], title: str) -> str:
    """Return names and dollars as bars, the first on top, as a file; readable on light and dark
    pages."""
    labels = [f"{name}   {dollars(total)}" for name, total in totals]
    left = 20 + 7.5 * max(map(len, labels), default=0)
    most = max((total for _, total in totals), default=0.0) or 1.0
    parts = [_text(450, 30, title, "middle", ' font-size="16"')]
    for at, (label, (_, total)) in enumerate(zip(labels, totals, strict=True)):
        y, long = 60 + 34 * at, (880 - left) * total / most
        parts += [_text(left - 8, y + 15, label, "end")]
        parts += [f'<rect x="{left:.1f}" y="{y}" width="{long:.1f}" height="22" fill="#3f83c8"/>']
    look = (
        'xmlns="http://www.w3.org/2000/svg" fill="#7d8590" font-size="13" '
        'font-family="system-ui, sans-serif" xml:space="preserve"'
    )
    return _svg(900, 80 + 34 * len(totals), parts, look)


def parallel_coordinates(
    columns: Sequence[tuple[str, Sequence[str]]], redact: Callable[[str], str]
) -> Markup:
    """Return rows as lines over an axis for each column, of which one is a name and the rows'
    values; the earlier a row, the darker its line."""
    wide, narrow = (_coordinates(columns, *size, redact) for size in ((880, 320), (360, 260)))
    return for_two_screens(wide, narrow)


def _coordinates(
    columns: Sequence[tuple[str, Sequence[str]]],
    width: int,
    height: int,
    redact: Callable[[str], str],
) -> str:
    count = len(columns[0][1])
    step = (width - 2 * _EDGE) / max(1, len(columns) - 1)
    letters = max(4, int(step / 7))
    heights, parts = [], []
    for at, (name, values) in enumerate(columns):
        x = _EDGE + step * at if len(columns) > 1 else width / 2
        places, ticks = _scale(values, height)
        heights.append([(x, y) for y in places])
        parts.append(f'<path d="M{x:.1f} 30V{height - 20}" stroke="{_GREY}"/>')
        parts.append(_text(x, 18, name[:letters], "middle", ' font-weight="600"'))
        is_last = at and at == len(columns) - 1  # beyond it there is no room
        beside, anchor = (x - 5, "end") if is_last else (x + 5, "start")
        parts += [_text(beside, y + 4, redact(text)[:letters], anchor) for y, text in ticks]
    lines = []
    for at in reversed(range(count)):  # the best on top
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (column[at] for column in heights))
        share = at / max(1, count - 1)
        colour, thick = ("#c4502e", 2.6) if at == 0 else ("#2563ab", 1.2)
        stroke = f'stroke="{colour}" stroke-opacity="{1 - 0.8 * share:.2f}" stroke-width="{thick}"'
        lines.append(f'<polyline points="{points}" fill="none" {stroke}/>')
    return _svg(width, height, [*lines, *parts])


def _scale(values: Sequence[str], height: int) -> tuple[list[float], list[tuple[float, str]]]:
    """Return where each value is on an axis, and its labels: numbers by size, else in order."""
    top, bottom = 30.0, float(height - 20)
    found = [number for value in values if (number := _as_number(value)) is not None]
    if len(found) == len(values):
        is_log = min(found) > 0 and max(found) / min(found) >= 100
        scaled = [math.log(each) for each in found] if is_log else found
        axis = _Axis(scaled)
        places = [axis.place(each, bottom, top) for each in scaled]
        labels = dict(zip(places, (f"{each:.4g}" for each in found), strict=True))
        shown, ordered = list[float](), sorted(labels)
        for place in (ordered[0], ordered[-1], *ordered):  # the ends before what is between
            if all(abs(place - other) >= _TEXT_HEIGHT for other in shown):
                shown.append(place)
        return places, [(place, labels[place]) for place in shown]
    order = [*dict.fromkeys(values)]
    gap = (bottom - top) / max(1, len(order) - 1)
    where = {value: bottom - gap * at for at, value in enumerate(order)}
    return [where[value] for value in values], [(y, value[:24]) for value, y in where.items()]


def _as_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
