"""One setup, as this machine sees it: context, executor, result.

Programs of yours take these names from here (docs/library.md); each is imported when asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bootstrap.link.cancel import CancelToken
    from bootstrap.setup.request import SetupRequest
    from bootstrap.setup.result import SetupResult
    from bootstrap.setup.sequence import run_setup
    from bootstrap.ui.screen import Reporter

__all__ = ["CancelToken", "Reporter", "SetupRequest", "SetupResult", "run_setup"]

_MODULES = {
    "CancelToken": "bootstrap.link.cancel",
    "Reporter": "bootstrap.ui.screen",
    "SetupRequest": "bootstrap.setup.request",
    "SetupResult": "bootstrap.setup.result",
    "run_setup": "bootstrap.setup.sequence",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
