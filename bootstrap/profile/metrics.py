"""Turn a pattern of `train.metrics`, with a `{name}` for each number, into an expression."""

from __future__ import annotations

import re

from bootstrap.box.metrics import NUMBER

_NAMED = re.compile(r"\{([^{}]+)\}")


def as_row(pattern: str) -> str:
    """Return the pattern for `box/metrics.py`: names, a TAB, an expression with a group for each.

    The expression means the same to Python and to `grep -E`.
    """
    parts = _NAMED.split(pattern)
    expression = NUMBER.join(map(_literal, parts[::2]))
    return f"{','.join(parts[1::2])}\t{expression}"


def _literal(text: str) -> str:
    """Escape a text; a run of spaces in it matches one or more."""
    escaped = re.sub(r"([\\.*^$+?()|[])", r"\\\1", text)
    return re.sub(" +", " +", escaped)
