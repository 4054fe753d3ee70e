"""The live timeline: one line for each step, redrawn as things happen."""

# ruff: noqa: ARG002 - `Screen` gives the methods their arguments

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from bootstrap.sizes import duration
from bootstrap.steps.events import Event
from bootstrap.ui import layout
from bootstrap.ui.layout import Part, fit, step_line
from bootstrap.ui.screen import Paint, Result, Screen
from bootstrap.ui.steps import StepRow, Steps

FRAMES = 8  # a second
_LABEL = 9


class TimelineScreen(Screen):
    """A timeline on a terminal; `console` is for tests.

    Events only change what the next frame shows, so a flood of them causes no extra drawing.
    """

    def __init__(
        self,
        stream: TextIO,
        out: TextIO,
        *,
        env: Mapping[str, str],
        now: Callable[[], float] = time.monotonic,
        console: Console | None = None,
    ) -> None:
        self._stream, self._out = stream, out
        self._now = now
        self._marks = layout.marks(stream)
        self._console = console or _console(stream, env)
        self._paints = layout.is_live(out, env) and not env.get("NO_COLOR")
        self._lock = threading.RLock()
        self._steps = Steps(now)
        self._left: set[str] = set()  # finished steps, whose last line stays above
        self._lost_at: float | None = None
        self._live: Live | None = None
        self._show_keys: Callable[[], None] = lambda: None

    @property
    def width(self) -> int | None:
        return layout.width_of(self._out)

    def plan(self, steps: Sequence[str]) -> None:
        with self._lock:
            self._steps.plan(steps)
        self._begin()

    def event(self, event: Event) -> None:
        self.back()
        with self._lock:
            is_news = self._steps.take(event)
            if is_news:
                self._left.discard(event.step)
            row = self._steps.rows.get(event.step, self._steps.setup)
            warning = f"{row.step}: {row.said}" if event.event == "warn" and is_news else ""
        self._begin()
        if warning:
            self.warn(warning)

    def say(self, text: str) -> None:
        self._above(Text(self.safe_text(text)))

    def note(self, label: str, text: str) -> None:
        self._above(
            Text.assemble((f"   {self.safe_text(label):<{_LABEL}}  ", "dim"), self.safe_text(text))
        )

    def warn(self, text: str) -> None:
        self._above(
            Text.assemble((f" {self._marks.of['warned']} ", "yellow"), self.safe_text(text))
        )

    def log_tail(self, step: str, lines: Iterable[str | bytes]) -> None:
        self._end()
        self._above(Text(f" {step}:", "dim"))
        for each in self.safe_tail(lines):
            self._above(Text.assemble((" | ", "dim"), each))

    def result(self, data: Result, text: str = "", paint: Paint | None = None) -> None:
        if text:
            self._end()
            shown = self.safe_text(text)
            layout.write_line(self._out, paint(shown) if paint and self._paints else shown)

    def lost(self, seconds: float) -> None:
        with self._lock:
            if self._lost_at is None:
                self._lost_at = self._now() - seconds
        self._begin()

    def back(self) -> None:
        with self._lock:
            since, self._lost_at = self._lost_at, None
        if since is not None:
            self.say(f" link back after {duration(self._now() - since)}")

    def close(self) -> None:
        self._end()

    def safe_text(self, text: str | bytes) -> str:
        return layout.fit_width(self._stream, super().safe_text(text))

    def frame(self, width: int, height: int | None = None) -> list[Text]:
        """Return the lines for `width` columns; over `height`, the least important are left out."""
        with self._lock:
            rows = [
                row
                for step, row in self._steps.rows.items()
                if step not in self._left and not row.was_right
            ]
            meant = len(rows)
            foot = self._foot(width)
            if height is not None:
                rows = _most_important(rows, max(1, height - len(foot) - 1))
            hidden = meant - len(rows)
            lines = [self._row(row, width) for row in rows]
        if hidden:
            more = f"   {hidden} more steps"
            lines.append(Text(more[:width], "dim", no_wrap=True))
        return lines + foot

    def _row(self, row: StepRow, width: int) -> Text:
        turn = int(self._now() * FRAMES)
        seconds = self._steps.elapsed(row)
        return _text(
            step_line(row, width, self._marks, seconds=seconds, price=self.price, turn=turn)
        )

    def _foot(self, width: int) -> list[Text]:
        foot = []
        if self._steps.setup.started is not None:
            foot.append(self._row(self._steps.setup, width))
        if self._lost_at is not None:
            gone = duration(self._now() - self._lost_at)
            wordings = [
                f"link lost for {gone}; reconnecting; if the box is up, it continues",
                f"link lost for {gone}, trying again",
                f"link lost for {gone}",
            ]
            mark = f" {self._marks.of['warned']} "
            words = fit(wordings, width - len(mark), self._marks.cut)
            foot.append(_text([Part(mark + words, "yellow")]))
        return foot

    def _begin(self) -> None:
        if self._live is None:
            # Results go to the other stream, so rich has nothing to redirect.
            self._live = Live(
                console=self._console,
                get_renderable=self._draw,
                refresh_per_second=FRAMES,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start()
            self._show_keys = layout.silence_keys()

    def _end(self) -> None:
        """Draw a last, full frame; the finished steps in it stay there and are not redrawn."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
            self._show_keys()
            with self._lock:
                self._left.update(row.step for row in self._steps.rows.values() if row.is_over)

    def _draw(self) -> Group:
        # One column stays free, because some terminals wrap at the last one.
        size = self._console.size
        height = None if self._live is None else size.height - 1
        return Group(*self.frame(max(20, size.width - 1), height))

    def _above(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True, highlight=False)


def _console(stream: TextIO, env: Mapping[str, str]) -> Console:
    # Exported COLUMNS and LINES may be outdated, so the terminal's own size is used.
    asked = {name: value for name, value in env.items() if name not in {"COLUMNS", "LINES"}}
    no_color = bool(env.get("NO_COLOR"))
    return Console(file=stream, force_terminal=True, no_color=no_color, _environ=asked)


def _text(parts: Iterable[Part]) -> Text:
    text = Text(no_wrap=True, overflow="crop")
    for part in parts:
        text.append(part.text, part.colour or None)
    return text


def _most_important(rows: list[StepRow], most: int) -> list[StepRow]:
    """Choose `most` rows (running, failed, warned, waiting, then the others), in plan order."""
    rank = {"running": 0, "failed": 1, "warned": 2, "waiting": 3}
    chosen = sorted(rows, key=lambda row: rank.get(row.state, 4))[:most]
    return [row for row in rows if row in chosen]
