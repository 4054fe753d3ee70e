"""What is shown while a command works on several boxes: a row a box, live, and a table at the end.

On a terminal the rows are redrawn; elsewhere each box's lines have its name in front; with `--json`
each box's document is a part of the one that is printed.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import takewhile
from typing import TYPE_CHECKING, TextIO, cast

from bootstrap.boxes.run import called
from bootstrap.errors import BoxstrapError
from bootstrap.link import prompt
from bootstrap.link.target import shortened
from bootstrap.onbox.runs.first_output import is_first
from bootstrap.sizes import duration, first_of
from bootstrap.steps.events import Event
from bootstrap.ui import layout
from bootstrap.ui.screen import Paint, Result, Screen
from bootstrap.ui.screens import JsonScreen, PlainScreen
from bootstrap.ui.steps import RUNNING, Steps
from bootstrap.value import document

if TYPE_CHECKING:
    from rich.text import Text

FRAMES = 4  # drawings a second of a live table
_SUMMARY = 200  # characters of a result that the table has at the most
_MOST_NAMED = 5  # of a box's runs


class PrefixedStream(io.TextIOBase):
    """Writes whole lines to `stream`, each with a box's name in front; nothing once it is shut."""

    is_shut = False  # of all of them: after Ctrl-C the threads that are left write nothing any more

    def __init__(self, stream: TextIO, name: str, one_line: threading.Lock) -> None:
        super().__init__()
        self._stream, self._name, self._one_line = stream, name, one_line
        self._rest = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "utf-8"

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        if lines and not PrefixedStream.is_shut:
            with self._one_line:
                self._stream.write("".join(f"{self._name} | {line}\n" for line in lines))
        return len(text)

    def flush(self) -> None:
        if not PrefixedStream.is_shut:
            self._stream.flush()


class _Told:
    """What a box's results say, for the table and for the end of a live one."""

    def __init__(self, name: str) -> None:
        self.texts: list[str] = []
        self._name, self._run = f"{name}: ", ""
        self._begins = self._has_several = self._judges = False

    def note_run(self, data: Result) -> None:
        said = document(data)
        run, self._begins = said.get("run"), bool(said.get("first_lines"))
        self._judges = "verdict" in said
        runs = said.get("runs")
        self._has_several = isinstance(runs, list) and len(runs) > 1
        if isinstance(run, Mapping):
            how = f"ended with exit code {run['rc']}" if run.get("rc") else run["state"]
            self._run = f"{called(run['name'])} {'stopped' if run.get('ended') == 'stop' else how}"

    @property
    def summary(self) -> str:
        """What the table says: the run, if it is about one, and the first line of the results; of
        a run that begins the first line that is its own, else the last, as those before it may be
        warnings; of several runs what each line begins with; of a verdict its end."""
        told = [line for text in self.texts for line in text.splitlines()]
        if self._has_several:
            heads = [line.partition("; ")[0] for line in told if line == line.lstrip()]
            return "; ".join(first_of([*filter(None, heads)], _MOST_NAMED))
        lines = [line.strip() for line in told]
        # What follows an empty line says again which run it is.
        begun = [*(takewhile(bool, lines) if self._run else filter(None, lines))]
        if self._begins:  # of a short run all lines came
            begun = [*filter(is_first, begun)][:1] or begun
        line = ["", *(lines if self._judges else begun if self._begins else begun[:1])][-1]
        return ": ".join(filter(None, (self._run, line)))[:_SUMMARY]


class _PlainBox(PlainScreen, _Told):
    def __init__(self, name: str, stream: TextIO, out: TextIO, *, brief: bool) -> None:
        PlainScreen.__init__(self, stream, out)
        _Told.__init__(self, name)
        self._brief = brief

    def warn(self, text: str) -> None:
        super().warn(text.removeprefix(self._name))

    def result(self, data: Result, text: str = "", paint: Paint | None = None) -> None:
        self.note_run(data)
        self.texts.append(self.safe_text(text))
        if not self._brief:
            super().result(data, text, paint)


class _LiveBox(Screen, _Told):
    """Keeps what its row shows; results and warnings are printed when the table is done."""

    def __init__(self, name: str) -> None:
        _Told.__init__(self, name)
        self.warnings: list[str] = []
        self.said = ""
        self._steps = Steps()
        self._lost_s: float | None = None

    def words(self) -> str:
        if self._lost_s is not None:
            return f"link lost for {duration(self._lost_s)}; reconnecting"
        rows = [row for row in [*self._steps.rows.values()] if row.state == RUNNING]
        if not rows:
            return self.said
        return "; ".join(f"{row.step}: {row.words()[0]}".rstrip(": ") for row in rows)

    def plan(self, steps: Sequence[str]) -> None:
        self._steps.plan(steps)

    def event(self, event: Event) -> None:
        self._lost_s = None
        if self._steps.take(event) and event.event == "warn":
            row = self._steps.rows.get(event.step, self._steps.setup)
            self.warn(f"{row.step}: {row.said}")

    def say(self, text: str) -> None:
        self.said = next(iter(self.safe_text(text).splitlines()), "")

    def note(self, label: str, text: str) -> None:
        self.said = f"{self.safe_text(label)}: {self.safe_text(text)}"

    def warn(self, text: str) -> None:
        self.warnings.append(f"warning: {self.safe_text(text).removeprefix(self._name)}")

    def log_tail(self, step: str, lines: Iterable[str | bytes]) -> None:
        self.warnings += [f"{step} | {line}" for line in self.safe_tail(lines)]

    def result(
        self,
        data: Result,
        text: str = "",
        paint: Paint | None = None,  # noqa: ARG002 - a table has its own colours
    ) -> None:
        self.note_run(data)
        self.texts.append(self.safe_text(text))

    def lost(self, seconds: float) -> None:
        self._lost_s = seconds

    def back(self) -> None:
        self._lost_s = None

    def close(self) -> None:
        """Do nothing: the table is closed for all."""


class BoxScreens(ABC):
    """The screens of a command's boxes. `brief`: their results are only summed up in the table."""

    def __init__(self, hosts: Sequence[str], screen: Screen, *, brief: bool) -> None:
        self._hosts, self._screen, self._brief = hosts, screen, brief
        self._ends: dict[str, tuple[BoxstrapError | None, int, float]] = {}

    @abstractmethod
    def of(self, host: str) -> Screen:
        """Return the screen of one box."""

    def ended(self, host: str, error: BoxstrapError | None, code: int, seconds: float) -> None:
        self._ends[host] = (error, code, seconds)

    @abstractmethod
    def close(self) -> None:
        """Show how all ended."""

    def leave(self) -> None:
        """Show nothing more, after Ctrl-C."""
        PrefixedStream.is_shut = True

    def _table(self, summaries: Mapping[str, str]) -> None:
        rows = [("BOX", "EXIT", "TIME", "")]
        for host in self._hosts:
            error, code, seconds = self._ends[host]
            what = _unnamed(host, error).splitlines()[0] if error else summaries[host]
            rows.append((shortened(host), str(code), duration(seconds), what))
        table = layout.laid_out(rows, self._screen.width, len(rows[0]) - 1)
        lines = [line for row in table for line in row]
        self._screen.result({}, "\n".join(["", *lines, *self._advice()]))

    def _advice(self) -> list[str]:
        """Return each error in full that has more than a line, once, with the boxes it is of."""
        errors: dict[str, list[str]] = {}
        for host in self._hosts:
            error = self._ends[host][0]
            if error and "\n" in error.text():
                errors.setdefault(_unnamed(host, error), []).append(shortened(host))
        return [f"\n{', '.join(hosts)}: {text}" for text, hosts in errors.items()]


def _unnamed(host: str, error: BoxstrapError) -> str:
    """Return the error without the name of its box, which stands before it."""
    return error.text().removeprefix(f"{host}: ")


def plain_screens(hosts: Sequence[str], *, brief: bool) -> Mapping[str, _PlainBox]:
    """Return a screen for each host, for threads: of whole lines with the host's name in front."""
    lock, names = threading.Lock(), _names(hosts)
    return {
        host: _PlainBox(
            host,
            cast("TextIO", PrefixedStream(sys.stderr, name, lock)),
            cast("TextIO", PrefixedStream(sys.stdout, name, lock)),
            brief=brief,
        )
        for host, name in names.items()
    }


def _names(hosts: Sequence[str]) -> dict[str, str]:
    """Return what each is called before its lines, all as long."""
    names = {host: shortened(host) for host in hosts}
    longest = max(map(len, names.values()), default=0)
    return {host: name.ljust(longest) for host, name in names.items()}


class _PlainBoxes(BoxScreens):
    def __init__(self, hosts: Sequence[str], screen: Screen, *, brief: bool) -> None:
        super().__init__(hosts, screen, brief=brief)
        self._of = plain_screens(hosts, brief=brief)

    def of(self, host: str) -> Screen:
        return self._of[host]

    def close(self) -> None:
        self._table({host: box.summary for host, box in self._of.items()})


class _LiveBoxes(BoxScreens):
    def __init__(self, hosts: Sequence[str], screen: Screen, *, brief: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(hosts, screen, brief=brief)
        self._of = {host: _LiveBox(host) for host in hosts}
        self._began = time.monotonic()
        self._names = _names(hosts)
        self._marks = layout.marks(sys.stderr)
        self._console = Console(
            file=sys.stderr, force_terminal=True, no_color=bool(os.environ.get("NO_COLOR"))
        )
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=FRAMES,
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
        )
        self._live.start()
        self._show_keys = layout.silence_keys()
        prompt.while_asking = self._paused

    @contextmanager
    def _paused(self) -> Iterator[None]:
        self._live.stop()
        self._show_keys()
        yield
        self._live.start()
        self._show_keys = layout.silence_keys()

    def of(self, host: str) -> Screen:
        return self._of[host]

    def close(self) -> None:
        self.leave()
        for host, box in self._of.items():
            told = [*box.warnings, *([] if self._brief else box.texts)]
            if lines := [line for text in told for line in text.splitlines()]:
                name = self._names[host]
                self._screen.result({}, "\n".join(f"{name} | {line}" for line in lines))
        self._table({host: box.summary for host, box in self._of.items()})

    def leave(self) -> None:
        prompt.while_asking = nullcontext
        self._live.stop()
        self._show_keys()
        super().leave()

    def _draw(self) -> Text:
        from rich.text import Text

        console = self._console.size
        rows, most = [*self._hosts], max(1, console.height - 2)
        going = [host for host in rows if host not in self._ends]
        if len(rows) > most:  # those at work before those that are done
            rows = [*going, *(host for host in rows if host in self._ends)][:most]
        lines = [self._row(host)[: console.width - 1] for host in rows]
        lines.append(f"   {len(self._hosts) - len(going)} of {len(self._hosts)} done")
        return Text("\n".join(lines), no_wrap=True, overflow="crop")

    def _row(self, host: str) -> str:
        box, name, end = self._of[host], self._names[host], self._ends.get(host)
        if end is None:
            since = time.monotonic() - self._began
            turn = self._marks.spinner[int(since * FRAMES) % len(self._marks.spinner)]
            return f" {turn} {name}  {duration(since):>7}  {box.words()}"
        error, _, seconds = end
        mark = self._marks.of["failed" if error else "ok"]
        what = error.what.splitlines()[0] if error else box.summary
        return f" {mark} {name}  {duration(seconds):>7}  {what}"


class _JsonBoxes(BoxScreens):
    def __init__(self, hosts: Sequence[str], screen: Screen, *, brief: bool) -> None:
        super().__init__(hosts, screen, brief=brief)
        self._outs = {host: io.StringIO() for host in hosts}
        self._of = {host: JsonScreen(out) for host, out in self._outs.items()}

    def of(self, host: str) -> Screen:
        return self._of[host]

    def close(self) -> None:
        documents = []
        for host, screen in self._of.items():
            error, code, seconds = self._ends[host]
            if error:
                screen.failed(error, code)
            screen.close()
            found = json.loads(self._outs[host].getvalue())
            documents.append({"host": host, "seconds": round(seconds, 3), **found})
        self._screen.result({"boxes": documents})


def make_box_screens(
    hosts: Sequence[str], screen: Screen, *, as_json: bool, brief: bool, streams: bool = False
) -> BoxScreens:
    """Make those that fit the output; `screen` gets what is shown of all boxes together. `streams`:
    the boxes' output is printed meanwhile, and would be drawn over."""
    if as_json:
        return _JsonBoxes(hosts, screen, brief=brief)
    is_live = not streams and layout.is_live(sys.stderr, os.environ)
    return (_LiveBoxes if is_live else _PlainBoxes)(hosts, screen, brief=brief)
