"""Show boxes at work: a live table on a terminal, JSON if asked for, otherwise plain lines."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

from bootstrap.text.sizes import duration, size
from bootstrap.ui import layout

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bootstrap.errors import BoxstrapError
    from bootstrap.protocol.run_history import Card, Sample

VERSION = 1
SILENT_S = 10.0
"""Seconds without a sample after which a box is shown as silent: a faulty driver may hang."""
GIB = 1024**3
_COLOURS = {"live": "green", "lost": "yellow", "gone": "red"}

Redact = Callable[[str], str]


@dataclass
class BoxView:
    """The current state of one box."""

    name: str
    state: str = "connecting"
    """connecting, live, lost (is retried) or gone (is not)."""
    why: str = ""
    sample: Sample | None = None
    sampled: float = 0.0
    """When the sample came, by this machine's monotonic clock."""
    samples: int = 0
    error: BoxstrapError | None = None
    announced: bool = False
    """It is in the queue already, so that a box that sends without end can't fill the memory."""

    def age(self) -> float:
        """Return the seconds since its last sample."""
        return time.monotonic() - self.sampled


class TopScreen(Protocol):
    """Where samples are shown."""

    def show(self, views: Sequence[BoxView], changed: BoxView | None) -> None:
        """Show the boxes; `changed` has something new, or is None if only time has passed."""

    def is_left(self) -> bool:
        """Whether the user pressed q."""
        return False

    def close(self) -> None:
        """Restore the terminal."""


def make_top_screen(
    out: TextIO, *, as_json: bool, redact: Redact, env: dict[str, str]
) -> TopScreen:
    """Make the screen that fits `out`; `redact` redacts secrets in what a training logs."""
    if as_json:
        return JsonLines(out, redact)
    return LiveTable(out, redact) if layout.is_live(out, env) else PlainLines(out, redact)


class JsonLines(TopScreen):
    """One JSON object for each sample, with its version."""

    def __init__(self, out: TextIO, redact: Redact) -> None:
        self._out, self._redact = out, redact

    def show(self, views: Sequence[BoxView], changed: BoxView | None) -> None:  # noqa: ARG002
        """Print one line."""
        if changed is None:
            return
        line: dict[str, object] = {"v": VERSION, "box": changed.name, "state": changed.state}
        if changed.state == "live" and changed.sample:
            line.update(changed.sample.model_dump(exclude={"v", "missing"}))
        elif changed.why:
            line["why"] = changed.why
        self._out.write(json.dumps(self._hidden(line)) + "\n")
        self._out.flush()

    def _hidden(self, value: object) -> object:
        """Return the value with the secrets in each text redacted."""
        if isinstance(value, str):
            return self._redact(value)
        if isinstance(value, dict):
            return {key: self._hidden(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._hidden(each) for each in value]
        return value

    def close(self) -> None:
        """Nothing is held back."""


class PlainLines(TopScreen):
    """Prints a line for each GPU, and the lines of the box."""

    def __init__(self, out: TextIO, redact: Redact) -> None:
        self._out, self._redact = out, redact
        self._said: dict[str, str] = {}

    def show(self, views: Sequence[BoxView], changed: BoxView | None) -> None:  # noqa: ARG002
        """Print the lines of the box that changed."""
        if changed is None:
            return
        now = time.strftime("%H:%M:%S")
        if changed.state == "live" and changed.sample:
            lines = [*map(card_line, changed.sample.gpus), *box_lines(changed.sample)]
            lines = lines or ["reports nothing about itself"]
        else:
            lines = [f"{changed.state} {changed.why}".strip()]
            if lines[0] == self._said.get(changed.name):
                return
        self._said[changed.name] = lines[0]
        for line in lines:
            layout.write_line(self._out, self._redact(f"{now}  {changed.name}  {line}"))

    def close(self) -> None:
        """Nothing is held back."""


class LiveTable(TopScreen):
    """Shows all boxes in one table that is redrawn; q leaves it."""

    def __init__(self, out: TextIO, redact: Redact) -> None:
        from rich.console import Console
        from rich.live import Live

        self._redact = redact
        self._live = Live(console=Console(file=out), auto_refresh=False, transient=False)
        self._live.start()
        self._key, self._restore = layout.read_keys()

    def is_left(self) -> bool:
        """Whether the user pressed q."""
        return self._key() in {"q", "Q"}

    def show(self, views: Sequence[BoxView], changed: BoxView | None) -> None:  # noqa: ARG002
        """Redraw the table."""
        self._live.update(self.table(views), refresh=True)

    def close(self) -> None:
        """Leave the last table where it is."""
        self._live.stop()
        self._restore()

    def table(self, views: Sequence[BoxView]) -> RenderableType:
        """Lay out the boxes, one below the other."""
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        blocks: list[RenderableType] = []
        for view in views:
            state = _state(view)
            head = Text.assemble((view.name, "bold"), "  ", (state, _COLOURS.get(view.state, "")))
            blocks.append(head)
            if view.sample is None:
                continue
            table = Table(box=box.SIMPLE, padding=(0, 1), show_edge=False)
            for title in ("GPU", "load", "memory", "power", "heat", "clock", "processes"):
                words = title in ("GPU", "processes")
                table.add_column(title, justify="left" if words else "right", no_wrap=True)
            for card in view.sample.gpus:
                table.add_row(*(Text(self._redact(cell)) for cell in card_cells(card)))
            if view.sample.gpus:
                blocks.append(table)
            for line in box_lines(view.sample):
                blocks.append(Text(self._redact(line), no_wrap=True, overflow="ellipsis"))
            blocks.append(Text(""))
        return Group(*blocks, Text("q leaves; the boxes go on", "dim"))


def _state(view: BoxView) -> str:
    if view.state == "live" and view.age() > SILENT_S:
        return f"silent for {duration(view.age())}"
    return f"{view.state} {view.why}".strip()


def card_cells(card: Card) -> tuple[str, ...]:
    """Return the cells of one GPU; "-" means not reported."""
    name = (card.name or "?").removeprefix("NVIDIA ").removeprefix("GeForce ")
    if card.error is not None:
        return (f"{card.index} {name}", f"NVML error {card.error}", "", "", "", "", "")
    return (
        f"{card.index} {name}",
        _of(card.load, None, "%"),
        _of(_gib(card.memory_used), _gib(card.memory_total), "GiB"),
        _of(card.power, card.power_limit, "W"),
        _of(card.temperature, None, "°C"),
        _of(card.clock, None, "MHz"),
        ", ".join(_process(p.name, p.pid, p.memory) for p in card.processes) or "-",
    )


def card_line(card: Card) -> str:
    """Return the cells of one GPU in one line."""
    name, *cells = card_cells(card)
    return "  ".join([f"GPU {name}", *(cell for cell in cells if cell not in ("", "-"))])


def box_lines(sample: Sample) -> list[str]:
    """Return the lines of the machine, of an NVML error, and of the training run."""
    lines = []
    if sample.host:
        host = sample.host
        memory = _of(_gib(host.memory_used), _gib(host.memory_total), "GiB", 1)
        cpu = f"cpu {_of(host.cpu, None, '%')} of {host.cpus or '?'}"
        lines.append(f"{cpu}  memory {memory}  disk {size(host.disk_free)} free")
    if sample.error is not None:
        lines.append(f"NVML error {sample.error}: no GPU can be read")
    if sample.run:
        run = sample.run
        failed = run.state == "finished" and run.rc
        what = f"ended with exit code {run.rc}" if failed else run.state
        lines.append(f"{run.name} {what}" + (f": {run.last}" if run.last else ""))
        # The metric, unless it is that line: a log may have much between two of them.
        lines += [f"  {run.metric}"] if run.metric not in ("", run.last) else []
    return lines


def _process(name: str, pid: int, memory: int | None) -> str:
    held = f" {memory / GIB:.1f} GiB" if memory else ""
    return f"{name or pid}{held}"


def _gib(count: int | None) -> float | None:
    return None if count is None else count / GIB


def _of(here: float | None, most: float | None, unit: str, digits: int = 0) -> str:
    if here is None:
        return "-"
    of = f"/{most:.{digits}f}" if most is not None else ""
    return f"{here:.{digits}f}{of} {unit}"
