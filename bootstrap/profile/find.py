"""Find the file that a profile's name means."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from bootstrap import paths
from bootstrap.errors import ProfileError
from bootstrap.profile.rule import shown
from bootstrap.text.nearest import nearest

OF_A_REPOSITORY = paths.PROFILE
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def shipped(name: str) -> Path | None:
    """Return the file of the shipped profile `name`, if there is one."""
    return _in(paths.shipped("profiles"), name)


def is_shipped(path: Path) -> bool:
    """Whether `path` is a file that comes with boxstrap."""
    return paths.real(path).parent == paths.shipped("profiles").resolve()


def is_path(text: str) -> bool:
    """Whether `text` is meant as a path rather than as a name."""
    return "/" in text or text.endswith((".yaml", ".yml"))


def find(name_or_path: str) -> Path:
    """Return the file that is meant: a path, the user's profile, a shipped one, or a file here.

    Raises ProfileError that lists the known names.
    """
    if is_path(name_or_path):
        return paths.expanded(name_or_path)
    found = _in(paths.config_dir(), name_or_path) or shipped(name_or_path)
    if found:
        return found
    if _NAME.fullmatch(name_or_path) and Path(name_or_path).is_file():
        return Path(name_or_path)
    raise unknown_name(name_or_path, shipped_ones() | users_own())


def of_repository(root: Path) -> Path | None:
    """Return the profile of the repository at `root`, if it has one."""
    path = root / OF_A_REPOSITORY
    return path if os.path.lexists(path) else None


def shipped_ones() -> dict[str, Path]:
    """Name and file of each shipped profile."""
    return _all_in(paths.shipped("profiles"))


def users_own() -> dict[str, Path]:
    """Name and file of each profile in the user's config folder."""
    return _all_in(paths.config_dir())


def unknown_name(name: str, names: Iterable[str]) -> ProfileError:
    """Return the error for a name that no profile has."""
    close = nearest(name, names)
    hint = f"Did you mean {close}? " if close else ""
    return ProfileError(
        f"there is no profile {shown(name)}",
        hint=f"{hint}There are: {', '.join(names)}; or give a path, as in ./a100.yaml.",
    )


def label(path: Path) -> str:
    """Return `path` as messages name it: as short as possible, and printable."""
    if is_shipped(path):
        return f"shipped {path.name}"
    text = str(path)
    for folder, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_absolute() and path.is_relative_to(folder):
            text = prefix + str(path.relative_to(folder))
            break
    return text if text.isprintable() else shown(text, 200)


def _all_in(folder: Path) -> dict[str, Path]:
    found = sorted(folder.glob("*.yaml"))
    return {path.stem: path for path in found if _NAME.fullmatch(path.stem)}


def _in(folder: Path, name: str) -> Path | None:
    path = folder / f"{name}.yaml"
    return path if _NAME.fullmatch(name) and path.is_file() else None
