"""The plots of a report, as inline SVG without scripts or external resources."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bootstrap.text.sizes import duration, number

SIZE, HALF = (880, 230), (430, 190)
"""Width and height in pixels: of a full-width plot, and of one of two side by side."""
_COLOURS = ("#2563ab", "#c4502e", "#2c8a57", "#8a4fb0", "#b0892c", "#3a9aa8", "#b03a6d", "#5d6470")
_XMLNS = re.compile(r' xmlns(?::\w+)?="[^"]*"')


@dataclass(frozen=True)
class PlotLine:
    """One line of a plot: its name, and x and y of its points."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Plot:
    """A plot with its title, and a note below it."""

    title: str
    lines: Sequence[PlotLine]
    in_seconds: bool = False
    """Whether x is time; otherwise it is a count."""
    top: float | None = None
    """The highest possible y."""
    note: str = ""
    unit: str = ""
    is_half: bool = False

    def svg(self, at: int) -> str:
        """Return the plot as SVG; `at` is its number on the page, used in its id."""
        pygal = _import_pygal()
        style = pygal.style.Style(
            background="transparent",
            plot_background="transparent",
            font_family="inherit",
            colors=_COLOURS,
            label_font_size=11,
            major_label_font_size=11,
            legend_font_size=12,
            guide_stroke_dasharray="1,3",
            transition="none",
        )
        width, height = HALF if self.is_half else SIZE
        chart = pygal.XY(
            style=style,
            width=width,
            height=height,
            show_dots=False,
            js=(),
            legend_at_bottom=True,
            legend_at_bottom_columns=4,
            truncate_legend=-1,
            y_labels_major_count=3,
            max_scale=5,
            x_value_formatter=_time_words if self.in_seconds else number,
            value_formatter=self._value_words,
            no_data_text="no data",
            range=None if self.top is None else (0, self.top),
        )
        chart.uuid = f"plot-{at}"
        for line in self.lines:
            chart.add(line.name, list(line.points), stroke_style={"width": 1.6})
        root = chart.render_tree()
        _drop(root)
        return _XMLNS.sub("", pygal.etree.etree.tostring(root, encoding="unicode"))

    def _value_words(self, value: float) -> str:
        return f"{value:.4g}{self.unit}"


def _import_pygal() -> Any:  # noqa: ANN401 - a module without types
    """Import it late: it takes half a second, which only reports should wait for."""
    finders = [*sys.meta_path]
    import pygal

    # It adds a finder for maps with the Python 2 API: later imports would warn about that.
    sys.meta_path[:] = finders
    return pygal


def _time_words(seconds: float) -> str:
    return duration(seconds) if seconds else "0"


def _drop(parent: Any) -> None:  # noqa: ANN401 - an element
    """Remove comments, pygal's tooltip script, and the texts of tooltips."""
    for child in list(parent):
        if not isinstance(child.tag, str) or child.tag.rpartition("}")[2] in ("script", "title"):
            parent.remove(child)
        else:
            _drop(child)
