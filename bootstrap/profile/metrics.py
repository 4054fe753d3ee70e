"""`train.metrics`: a line of the log with a `{name}` where each number stands, as an expression."""

from __future__ import annotations

import re

from bootstrap.box.metrics import NUMBER

_NAMED = re.compile(r"\{([^{}]+)\}")


def as_row(pattern: str) -> str:
    """The pattern as `box/metrics.py` reads it: names, a TAB, an expression with a group for each.

    The expression means the same to Python and to `grep -E`.
    """
    parts = _NAMED.split(pattern)
    expression = NUMBER.join(map(_literal, parts[::2]))
    return f"{','.join(parts[1::2])}\t{expression}"


def _literal(text: str) -> str:
    """It, with as many spaces in each place as the log has."""
    escaped = re.sub(r"([\\.*^$+?()|[])", r"\\\1", text)
    return re.sub(" +", " +", escaped)
