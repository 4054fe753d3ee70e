"""Choose the screen that fits the output."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TextIO

from bootstrap.ui import terminal
from bootstrap.ui.screen import Redact, Screen


def make_screen(  # noqa: PLR0913 - all but the first have one sensible value
    json: bool = False,
    stream: TextIO | None = None,
    out: TextIO | None = None,
    *,
    redact: Redact = str,
    price: float | None = None,
    env: Mapping[str, str] | None = None,
) -> Screen:
    """Make the screen that fits: JSON if asked for, live on a terminal, otherwise plain lines.

    `stream` (default: standard error) gets progress, `out` (default: standard
    output) results; `price` is in dollars an hour. `TERM=dumb` means plain
    lines; `NO_COLOR` gives a timeline without colours.
    """
    stream, out = stream or sys.stderr, out or sys.stdout
    env = os.environ if env is None else env
    screen = _choose(json, stream, out, redact, env)
    screen.price = price
    return screen


def _choose(
    json: bool, stream: TextIO, out: TextIO, redact: Redact, env: Mapping[str, str]
) -> Screen:
    if json:
        from bootstrap.ui.document import DocumentScreen

        return DocumentScreen(out, redact)
    if terminal.is_live(stream, env):
        from bootstrap.ui.timeline import TimelineScreen

        return TimelineScreen(stream, out, redact, env=env)
    from bootstrap.ui.plain import PlainScreen

    return PlainScreen(stream, out, redact)
