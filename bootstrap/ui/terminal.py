"""What a stream can display, and which marks to use on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TextIO

from bootstrap.ui import steps


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
    """Return the marks that the stream's encoding can show."""
    return UNICODE if _is_utf8(stream) else ASCII


def is_live(stream: TextIO, env: Mapping[str, str]) -> bool:
    """Whether lines on this stream can be overwritten."""
    if env.get("TERM", "" if os.name != "nt" else "windows") in {"", "dumb", "unknown"}:
        return False
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def write_line(stream: TextIO, text: str) -> None:
    """Write a line and flush it."""
    stream.write(fitting(stream, text) + "\n")
    stream.flush()


def fitting(stream: TextIO, text: str) -> str:
    """Return the text with `?` for characters that the stream's encoding lacks."""
    if _is_utf8(stream):
        return text
    encoding = stream.encoding or "ascii"
    return text.encode(encoding, "replace").decode(encoding)


def silence_keys() -> Callable[[], None]:
    """Turn off the terminal's echo; returns a function that turns it on again.

    Otherwise an Enter pressed in the meantime would move the timeline by a line.
    Does nothing without a terminal, on Windows, and in the background, where
    changing the terminal would stop the program.
    """
    if os.name == "nt" or sys.stdin is None or not sys.stdin.isatty():
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


def _is_in_front(fd: int) -> bool:
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:  # a terminal, but not our controlling one
        return False


def _is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "").replace("_", "") in {"utf8", "utf8sig"}
