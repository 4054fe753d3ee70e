"""Files to a box, and from it: over the login that is there, whole or not at all.

Who stands outside takes these names from here; each is imported when asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap import front

if TYPE_CHECKING:
    from bootstrap.transfer.frames import BoxResults, GivenFile, Transfer, WantedFile

__all__ = ["BoxResults", "GivenFile", "Transfer", "WantedFile"]
__getattr__ = front(__name__, {"frames": " ".join(__all__)})
