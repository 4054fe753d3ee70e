"""boxstrap: from a rented GPU box to a running training in one command.

`from bootstrap import Box` is for programs of yours (docs/library.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bootstrap.library import Box, BoxRun

__all__ = ["Box", "BoxRun"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bootstrap import library  # late: most imports of this package need no box

    return getattr(library, name)
