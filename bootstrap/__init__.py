"""boxstrap: from a rented GPU box to a running training in one command.

`from bootstrap import Box` is for programs of yours (docs/library.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bootstrap.library import Box, BoxRun

__all__ = ["Box", "BoxRun"]
__version__ = "0.1.0"


def front(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a package's `__getattr__`: what its modules offer, each imported when asked for.

    `names`: the names of each module, as words.
    """
    places = {name: module for module, words in names.items() for name in words.split()}

    def get(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{places[name]}"), name)

    return get


__getattr__ = front(__name__, {"library": "Box BoxRun"})
