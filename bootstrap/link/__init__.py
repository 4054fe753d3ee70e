"""The wire: how a box is found, reached, trusted and spoken to.

Who stands outside takes these names from here; each is imported when asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap import front

if TYPE_CHECKING:
    from bootstrap.link.endpoint import Endpoint
    from bootstrap.link.forgotten import forget_box
    from bootstrap.link.local import LocalStream, LocalWire
    from bootstrap.link.reconnecting import ReconnectingLink
    from bootstrap.link.record import (
        BoxRepository,
        KnownBox,
        Route,
        all_boxes,
        ended_boxes,
        read_box,
        retire,
        save_box,
        save_with_pin,
    )
    from bootstrap.link.registry import ask_account
    from bootstrap.link.target import BoxOptions, parse_host
    from bootstrap.link.wire import LinkLost, NoAnswer

__all__ = ["BoxOptions", "Endpoint", "KnownBox", "LinkLost", "LocalStream", "LocalWire", "NoAnswer"]
__all__ += ["BoxRepository", "ReconnectingLink", "Route", "all_boxes", "ask_account", "ended_boxes"]
__all__ += ["forget_box", "parse_host", "read_box", "retire", "save_box", "save_with_pin"]
_MODULES = {"endpoint": "Endpoint", "forgotten": "forget_box", "local": "LocalStream LocalWire"}
_MODULES |= {"reconnecting": "ReconnectingLink", "registry": "ask_account"}
_MODULES |= {"target": "BoxOptions parse_host", "wire": "LinkLost NoAnswer"}
_MODULES["record"] = (
    "BoxRepository KnownBox Route all_boxes ended_boxes read_box retire save_box save_with_pin"
)
__getattr__ = front(__name__, _MODULES)
