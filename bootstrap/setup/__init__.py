"""One setup, as this machine sees it: context, executor, result.

Programs of yours take these names from here (docs/library.md); each is imported when asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap import front

if TYPE_CHECKING:
    from bootstrap.link.cancel import CancelToken
    from bootstrap.setup.request import SetupRequest
    from bootstrap.setup.result import SetupResult
    from bootstrap.setup.sequence import run_setup
    from bootstrap.ui.screen import Reporter

__all__ = ["CancelToken", "Reporter", "SetupRequest", "SetupResult", "run_setup"]
_MODULES = {"link.cancel": "CancelToken", "ui.screen": "Reporter", "setup.request": "SetupRequest"}
_MODULES |= {"setup.result": "SetupResult", "setup.sequence": "run_setup"}
__getattr__ = front("bootstrap", _MODULES)
