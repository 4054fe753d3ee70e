"""The package index for a box without pip and uv: pip's built-in default.

boxstrap names no index of its own. A box uses the index of its pip or uv; if it has
neither, it uses the default of this machine's pip.
"""

from __future__ import annotations

from functools import cache


@cache
def default_index() -> str:
    """Return the URL of pip's default index; empty if pip is not installed."""
    try:
        from pip._internal.models.index import PyPI
    except ImportError:
        return ""
    return str(PyPI.simple_url)
