"""The wire: how a box is found, reached, trusted and spoken to. Who stands outside takes these
names from here; each is imported when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bootstrap import front

if TYPE_CHECKING:
    from bootstrap.link.cancel import CancelledError, CancelToken, made_beside
    from bootstrap.link.endpoint import Endpoint
    from bootstrap.link.forgotten import forget_box
    from bootstrap.link.local import LocalStream, LocalWire
    from bootstrap.link.query import LaunchOptions, build_query
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

__all__ = ["BoxOptions", "BoxRepository", "CancelToken", "CancelledError", "Endpoint"]
__all__ += ["KnownBox", "LaunchOptions", "LinkLost", "LocalStream", "LocalWire", "NoAnswer"]
__all__ += ["ReconnectingLink", "Route", "all_boxes", "ask_account", "build_query", "ended_boxes"]
__all__ += ["forget_box", "made_beside", "parse_host", "read_box", "retire", "save_box"]
__all__ += ["save_with_pin"]
_MODULES = {"endpoint": "Endpoint", "forgotten": "forget_box", "local": "LocalStream LocalWire"}
_MODULES |= {"cancel": "CancelToken CancelledError made_beside"}
_MODULES |= {"query": "LaunchOptions build_query", "reconnecting": "ReconnectingLink"}
_MODULES |= {"registry": "ask_account"}
_MODULES |= {"target": "BoxOptions parse_host", "wire": "LinkLost NoAnswer"}
_MODULES["record"] = (
    "BoxRepository KnownBox Route all_boxes ended_boxes read_box retire save_box save_with_pin"
)
__getattr__ = front(__name__, _MODULES)
