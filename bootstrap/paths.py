"""Where boxstrap keeps things on this machine, and where what it ships lies."""

from __future__ import annotations

from pathlib import Path

import platformdirs

_PACKAGE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """The shipped folder `name` (`templates` or `profiles`).

    In a wheel it lies inside the package; in a checkout and in an editable
    install, where `force-include` does nothing, beside it.
    """
    inside = _PACKAGE / "shipped" / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def state_dir() -> Path:
    """The folder of what boxstrap remembers: known boxes, host keys, reports."""
    return Path(platformdirs.user_state_dir("boxstrap", appauthor=False))


def cache_dir() -> Path:
    """The folder of what can be made again."""
    return Path(platformdirs.user_cache_dir("boxstrap", appauthor=False))


def config_dir() -> Path:
    """The folder of the user's own profiles."""
    return Path(platformdirs.user_config_dir("boxstrap", appauthor=False))
