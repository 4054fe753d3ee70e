"""Lay out a step in one line of a given width, rows in columns, and the next commands. Pure. ASCII
and marks only: what a stream can display decides which marks are used on it."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TextIO

from bootstrap.sizes import dollars, duration, spent_in_words
from bootstrap.ui import steps
from bootstrap.ui.steps import FAILED, OK, RUNNING, SKIPPED, WAITING, WARNED, StepRow
from bootstrap.value import dataclass


@dataclass(frozen=True)
class Marks:
    """The characters for steps' states, bars and cut lines."""

    of: Mapping[str, str]
    spinner: str
    bar: str
    rest: str
    cut: str


_STATES = (steps.WAITING, steps.OK, steps.SKIPPED, steps.WARNED, steps.FAILED)
UNICODE = Marks(dict(zip(_STATES, "·✓–!✗", strict=True)), "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "━", "─", "…")  # noqa: RUF001
ASCII = Marks(dict(zip(_STATES, ".+-!x", strict=True)), "|/-\\", "#", "-", "~")


def marks(stream: TextIO) -> Marks:
    return UNICODE if _is_utf8(stream) else ASCII


def is_live(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Whether lines on this stream can be overwritten."""
    if env.get("TERM", "" if os.name != "nt" else "windows") in {"", "dumb", "unknown"}:
        return False
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def width_of(stream: TextIO) -> int | None:
    """Return the columns of the terminal behind this stream; None if it is none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        return None


def write_line(stream: TextIO, text: str) -> None:
    stream.write(fit_width(stream, text) + "\n")
    stream.flush()


def fit_width(stream: TextIO, text: str) -> str:
    """Return the text with `?` for characters that the stream's encoding lacks."""
    if _is_utf8(stream):
        return text
    encoding = stream.encoding or "ascii"
    return text.encode(encoding, "replace").decode(encoding)


def silence_keys() -> Callable[[], None]:
    """Turn off the terminal's echo; returns a function that turns it on again.

    Otherwise an Enter pressed in the meantime would move the timeline by a line. Does nothing
    without a terminal, and in the background, where changing the terminal would stop the program.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        return lambda: None
    import termios

    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)

    def show(echo: bool) -> None:
        if not _is_in_front(fd):
            return
        modes = [*before[:3], before[3] if echo else before[3] & ~termios.ECHO, *before[4:]]
        termios.tcsetattr(fd, termios.TCSADRAIN, modes)

    show(False)
    return lambda: show(True)


def read_keys() -> tuple[Callable[[], str], Callable[[], None]]:
    """Take single keys, without Enter and without echo.

    Returns a function with the key that was pressed ("" for none; it does not wait), and one that
    restores the terminal. Without a terminal and in the background there are no keys.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        return lambda: "", lambda: None
    import select
    import termios
    import tty

    fd = sys.stdin.fileno()
    if not _is_in_front(fd):
        return lambda: "", lambda: None
    before = termios.tcgetattr(fd)
    tty.setcbreak(fd)

    def key() -> str:
        is_pressed = select.select([fd], [], [], 0)[0]
        return os.read(fd, 1).decode("ascii", "replace") if is_pressed else ""

    return key, lambda: termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _is_in_front(fd: int) -> bool:
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # a terminal, but not our controlling one
        return False


def _is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "").replace("_", "") in {"utf8", "utf8sig"}


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


def step_line(  # noqa: PLR0913 - a line is made of these
    row: StepRow,
    width: int,
    marks: Marks,
    *,
    seconds: float | None,
    price: float | None = None,
    turn: int = 0,
) -> list[Part]:
    """Lay out the row in exactly `width` columns (40 or more); `price` is in dollars an hour.
    `turn` counts the frames and turns the spinner of a running step."""
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
    time = "" if seconds is None else duration(seconds)
    end = f"  {time:>{_TIME}}"
    if price is None:
        return end
    return f"{end}{spent_in_words(seconds, price):>{_PRICE}}"


def filled(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the rows without columns that are empty in all of them."""
    empty = {at for at, column in enumerate(zip(*rows, strict=True)) if not any(column)}
    return [tuple(cell for at, cell in enumerate(row) if at not in empty) for row in rows]


def cut(line: str, width: int | None) -> str:
    return line if width is None or len(line) <= width else f"{line[: width - 1]}…"


def aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Make a line for each row, with its cells aligned in columns."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


_INDENT = " " * 6


def laid_out(rows: Sequence[tuple[str, ...]], width: int | None, of_first: int) -> list[list[str]]:
    """Return the lines of each row: one, or several if the terminal is too narrow for one. The
    first of several has `of_first` cells, if they fit. Nothing is cut: it tells rows apart."""
    one_line = aligned(filled(rows))
    if width is None or max(map(len, one_line), default=0) <= width:
        return [[line] for line in one_line]
    first = aligned(filled([row[:of_first] for row in rows]))
    return [
        [line, *_flowed(row[of_first:], width)]
        if len(line) <= width
        else [row[0][:width], *_flowed([row[0][width:], *row[1:]], width)]
        for line, row in zip(first, rows, strict=True)
    ]


def _flowed(cells: Iterable[str], width: int) -> list[str]:
    """Return indented lines with as many cells as fit into each; a longer cell is folded."""
    import textwrap  # late: of a narrow terminal

    lines = [""]
    for cell in filter(None, cells):
        for piece in textwrap.wrap(cell, width - len(_INDENT)):
            longer = f"{lines[-1]}  {piece}" if lines[-1] else _INDENT + piece
            lines[-1:] = [longer] if len(longer) <= width else [lines[-1], _INDENT + piece]
    return lines


def what_next(head: str, commands: Iterable[tuple[str, str]], billing: str) -> str:
    """Return the block that ends a setup: state, aligned commands, billing; no empty line."""
    told = aligned((f"  {label}", command) for label, command in commands if command)
    return "\n\n".join(filter(None, (head, "\n".join(told), billing)))


def still_billing(down: str, destroy_at: str = "", price: float | None = None) -> str:
    costs = "still billing" if price is None else f"still billing {dollars(price)} an hour"
    place = f"at {destroy_at}" if destroy_at else "where you rented it"
    return f"{costs}: give it back with {down}, or destroy it {place}"
