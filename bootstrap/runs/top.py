"""`top`: watch several boxes live, with a login and a thread each, on one screen. A live table on a
terminal, JSON if asked for, otherwise plain lines."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from bootstrap.boxes.disk import is_low
from bootstrap.boxes.login import BoxLogin
from bootstrap.boxes.run import called
from bootstrap.boxes.run_history import Sample, SampleLines
from bootstrap.errors import BoxLacksError, BoxstrapError, UnreachableError
from bootstrap.link.exchange import stream_script
from bootstrap.link.query import BoxRedaction, ask
from bootstrap.link.registry import meant
from bootstrap.link.target import BoxOptions
from bootstrap.link.wire import LinkLost
from bootstrap.sanitize import one_line
from bootstrap.sizes import duration, size
from bootstrap.ui import layout
from bootstrap.ui.screen import Reporter
from bootstrap.value import document, with_texts

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bootstrap.boxes.run_history import Card

RETRY_S = 15.0  # seconds between two tries of a box that could not be reached at first
TICK_S = 0.5  # seconds after which a screen is drawn again, so that ages grow


@dataclass
class TopOptions:
    """Seconds between samples, and their number; 0 means until the user ends it."""

    every_s: int = 2
    samples: int = 0
    warn: Callable[[str], None] = field(default=lambda _text: None)


def watch_boxes(
    options: BoxOptions, hosts: Sequence[str], wanted: TopOptions, screen: TopScreen
) -> None:
    """Show the boxes until each has sent enough samples, or the user ends it. Raises UsageError if
    no box is meant; the first box's error if none can be reached."""
    changes: queue.Queue[BoxView] = queue.Queue()
    feeds: list[Feed] = []
    try:
        feeds += [Feed(one, wanted, changes) for one in meant(options, hosts)]
        views = [feed.view for feed in feeds]
        for feed in feeds:
            feed.start()
        while not over(views, wanted.samples) and not screen.is_left():
            try:
                changed = changes.get(timeout=TICK_S)
                changed.announced = False
                screen.show(views, changed)
            except queue.Empty:
                screen.show(views, None)
    finally:
        screen.close()
        for feed in feeds:
            feed.close()
    first = next((view.error for view in views if view.error), None)
    if first is not None and not any(view.samples for view in views):
        raise first


def over(views: Sequence[BoxView], samples: int) -> bool:
    """Whether no more samples are to be expected."""
    unreached = [view for view in views if view.error and not view.samples]
    left = [view for view in views if view.state != "gone" and view not in unreached]
    if not left:
        return all(view.error for view in views)
    return samples > 0 and all(view.samples >= samples for view in left)


class Feed(threading.Thread):
    """One box: logs in, again after a lost link, and passes on its samples."""

    def __init__(
        self, options: BoxOptions, wanted: TopOptions, changes: queue.Queue[BoxView]
    ) -> None:
        super().__init__(name=f"top {options.host}", daemon=True)
        self._box = BoxLogin.find(options, _FeedReporter(self, wanted.warn))
        self.view = BoxView(self._box.name)
        self._every, self._most = wanted.every_s, wanted.samples
        self._changes = changes
        self._closed = threading.Event()

    def run(self) -> None:
        """Read samples until closed, until there are enough, or until the box can't be watched."""
        while not self._closed.is_set() and not self._enough():
            try:
                self._follow()
            except LinkLost as lost:
                self._again(lost)
            except UnreachableError as error:
                self.tell("lost", error.what, error)
                self._closed.wait(RETRY_S)
            except BoxstrapError as error:
                self.tell("gone", error.what, error)
                return

    def close(self) -> None:
        self._closed.set()
        self._box.close()

    def _again(self, lost: LinkLost) -> None:
        if self._closed.is_set():
            return
        try:
            self._box.link.reconnect(lost)
        except BoxstrapError as error:
            self.tell("gone", error.what, error)
            self._closed.set()

    def _follow(self) -> None:
        # Without a probe, which secrets it still holds is unknown: it redacts all it was given.
        box = self._box
        there = BoxRedaction(box.known.secrets or ())
        asked, workdir = {"every": self._every}, box.known.workdir
        query = ask("runs.top_stream", asked, there, workdir=workdir, lacking='{"missing": true}')
        stream = stream_script(box.wire, query)
        lines = SampleLines()
        while piece := stream.read(64 * 1024):
            for sample in lines.feed(piece):
                self._take(sample)
                if self._enough():
                    return
        if self._closed.is_set():
            return
        said = stream.read_err().strip()
        if box.wire.alive() and said:
            raise BoxLacksError(
                f"it can't be looked at: {one_line(said)[-300:]}",
                where=box.label,
                hint="Set the box up again: boxstrap verify",
            )
        raise LinkLost(box.label, "the box stopped sending samples")

    def _enough(self) -> bool:
        return 0 < self._most <= self.view.samples

    def _take(self, sample: Sample) -> None:
        if sample.missing:
            raise BoxLacksError(
                "boxstrap's programs are not installed on this box.",
                where=self.view.name,
                hint=f"It comes with a setup, or with: boxstrap verify --host {self.view.name}",
            )
        view = self.view
        view.sample, view.sampled, view.samples = sample, time.monotonic(), view.samples + 1
        self.tell("live", "")

    def tell(self, state: str, why: str, error: BoxstrapError | None = None) -> None:
        self.view.state, self.view.why, self.view.error = state, why, error
        if not self.view.announced:
            self.view.announced = True
            self._changes.put(self.view)


class _FeedReporter(Reporter):
    """Shows in a feed's view what becomes of its link."""

    def __init__(self, feed: Feed, warn: Callable[[str], None]) -> None:
        self._feed, self._warn = feed, warn

    def say(self, text: str) -> None:
        self._warn(text)

    def warn(self, text: str) -> None:
        self._feed.tell("lost", text)

    def lost(self, seconds: float) -> None:
        self._feed.tell("lost", f"for {seconds:.0f} s")

    def back(self) -> None:
        self._feed.tell("connecting", "")


VERSION = 1
SILENT_S = 10.0
"""Seconds without a sample after which a box is shown as silent: a faulty driver may hang."""
GIB = 1024**3
_COLOURS = {"live": "green", "lost": "yellow", "gone": "red"}

Redact = Callable[[str], str]


@dataclass
class BoxView:
    name: str
    state: str = "connecting"  # connecting, live, lost (is retried) or gone (is not)
    why: str = ""
    sample: Sample | None = None
    sampled: float = 0.0  # when the sample came, by this machine's monotonic clock
    samples: int = 0
    error: BoxstrapError | None = None
    announced: bool = False
    """It is in the queue already, so that a box that sends without end can't fill the memory."""

    def age(self) -> float:
        """Return the seconds since its last sample."""
        return time.monotonic() - self.sampled


class TopScreen:
    """Where samples are shown. It does nothing; screens override it."""

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
        if changed is None:
            return
        line: dict[str, object] = {"v": VERSION, "box": changed.name, "state": changed.state}
        if changed.state == "live" and changed.sample:
            sample = changed.sample
            line.update(sample.model_dump(exclude={"v", "missing", "low"}))
            line["low"] = document(sample.low)
        elif changed.why:
            line["why"] = changed.why
        self._out.write(json.dumps(with_texts(line, self._redact)) + "\n")
        self._out.flush()


class PlainLines(TopScreen):
    """Prints a line for each GPU, and the lines of the box."""

    def __init__(self, out: TextIO, redact: Redact) -> None:
        self._out, self._redact = out, redact
        self._said: dict[str, str] = {}

    def show(self, views: Sequence[BoxView], changed: BoxView | None) -> None:  # noqa: ARG002
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
        return self._key() in {"q", "Q"}

    def show(self, views: Sequence[BoxView], changed: BoxView | None) -> None:  # noqa: ARG002
        self._live.update(self.table(views), refresh=True)

    def close(self) -> None:
        self._live.stop()
        self._restore()

    def table(self, views: Sequence[BoxView]) -> RenderableType:
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
    name, *cells = card_cells(card)
    return "  ".join([f"GPU {name}", *(cell for cell in cells if cell not in ("", "-"))])


def box_lines(sample: Sample) -> list[str]:
    """Return the lines of the machine, of an NVML error, and of the newest and each live run."""
    lines = []
    if sample.host:
        host = sample.host
        memory = _of(_gib(host.memory_used), _gib(host.memory_total), "GiB", 1)
        cpu = f"cpu {_of(host.cpu, None, '%')} of {host.cpus or '?'}"
        low = " (low)" if is_low(host.disk_free, host.disk_total) else ""
        lines.append(f"{cpu}  memory {memory}  disk {size(host.disk_free)} free{low}")
    if sample.low:
        lines.append(sample.low.words())
    if sample.error is not None:
        lines.append(f"NVML error {sample.error}: no GPU can be read")
    for run in (*([sample.run] if sample.run else []), *sample.others):
        failed = run.state == "finished" and run.rc
        what = f"ended with exit code {run.rc}" if failed else run.state
        lines.append(f"{called(run.name)} {what}" + (f": {run.last}" if run.last else ""))
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
