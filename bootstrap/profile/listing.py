"""The profiles that can be named, for `boxstrap profiles`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bootstrap.profile import find
from bootstrap.profile.yaml_source import LARGEST_FILE

_NO_DESCRIPTION = ("yaml-language-server:", "!", "-*-")


@dataclass(frozen=True)
class Listed:
    """A profile as one line of the list; `own` means that it is the user's."""

    name: str
    path: Path
    description: str
    own: bool


def listed() -> list[Listed]:
    """Return the user's own profiles, then the shipped ones that they do not replace."""
    own = find.users_own()
    shipped = {name: path for name, path in find.shipped_ones().items() if name not in own}
    return [Listed(name, path, describe(path), own=True) for name, path in own.items()] + [
        Listed(name, path, describe(path), own=False) for name, path in shipped.items()
    ]


def describe(path: Path) -> str:
    """Return the first comment line at the top of the file, or ""."""
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_FILE).decode(errors="replace")
    except OSError:
        return ""
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        words = line.lstrip("# ").strip()
        if words and not words.startswith(_NO_DESCRIPTION):
            return "".join(char for char in words if char.isprintable())[:100]
    return ""
