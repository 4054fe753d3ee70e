"""Where boxstrap keeps things on this machine, and where what it ships lies."""

from __future__ import annotations

import os
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


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file that only this user can read, whole or not at all. Raises OSError."""
    import tempfile  # a start that writes nothing doesn't wait for it

    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
