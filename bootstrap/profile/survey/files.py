"""Read the files of a repository, within limits."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

LARGEST_READ = 64 * 1024  # bytes of a file that is only looked through
LARGEST_SCRIPT = 512 * 1024
LARGEST = 4 * 1024 * 1024  # bytes of a lock or a notebook
MOST = 200  # entries of a folder
_NOT_THEIRS = {"site-packages", "node_modules", "tests", "test", "docs", "build", "dist"}


def text(path: Path, largest: int = LARGEST_READ) -> str:
    """Return the start of a file as text, or "" if it can't be read."""
    with contextlib.suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return file.read(largest).decode(errors="replace")
    return ""


def inside(folder: Path) -> list[Path]:
    """Return the entries of a folder that are not hidden, sorted."""
    try:
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []
    return found[:MOST]


def below(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files in a folder and up to `depth` folders down, those at the top first."""
    entries = inside(folder)
    yield from (path for path in entries if path.is_file())
    for path in entries if depth else ():
        theirs = path.name not in _NOT_THEIRS and not (path / "pyvenv.cfg").exists()
        if theirs and path.is_dir() and not path.is_symlink():
            yield from below(path, depth - 1)


def toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; {} if that is not possible."""
    return parse_toml(text(path, LARGEST_SCRIPT))


def parse_toml(written: str) -> dict[str, Any]:
    """Parse TOML; {} if it is not valid."""
    reader = import_module("tomllib" if sys.version_info >= (3, 11) else "pip._vendor.tomli")
    try:
        found: dict[str, Any] = reader.loads(written)
    except (ValueError, RecursionError):
        return {}
    return found


def yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file; {} if it can't be read as a mapping."""
    from yaml import YAMLError, safe_load

    try:
        found = safe_load(text(path))
    except (YAMLError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
