"""Find the known word nearest to a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, words: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the one of `words` most like `word`, or ""; `cutoff` is the least likeness, 0 to 1."""
    close = difflib.get_close_matches(word[:64], list(words), n=1, cutoff=cutoff)
    return close[0] if close else ""
