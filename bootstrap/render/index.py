"""The package index that a box without pip falls back to: the one that pip has built in.

boxstrap names no index of its own. On a box the index is that of its pip or uv;
where neither is there to ask, the default that this machine's pip carries is used.
"""

from __future__ import annotations

from functools import cache


@cache
def default_index() -> str:
    """The address that pip asks where nobody set another. Empty where pip is not installed."""
    try:
        from pip._internal.models.index import PyPI
    except ImportError:
        return ""
    return str(PyPI.simple_url)
