"""The wire: how a box is found, reached, trusted and spoken to.

Who stands outside takes these names from here; each is imported when asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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
_MODULES = {"LocalStream": "local", "LocalWire": "local", "Endpoint": "endpoint"}
_MODULES |= {"BoxOptions": "target", "parse_host": "target"}
_MODULES |= {"ask_account": "registry", "forget_box": "forgotten"}
_MODULES |= {"LinkLost": "wire", "NoAnswer": "wire", "ReconnectingLink": "reconnecting"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'record')}"), name)
