"""An account's API key, from the environment or the provider's own file; never stored by us."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from bootstrap.errors import UsageError
from bootstrap.paths import expanded

_LONGEST = 4096


@dataclass(frozen=True)
class ApiKey:
    """A key, and where it was found."""

    value: str = field(repr=False)
    source: str


@dataclass(frozen=True)
class KeyPlaces:
    """Where the key of one provider may be."""

    variable: str
    files: tuple[str, ...]
    """Files that the provider's own tools write, in the order in which they are read."""
    pattern: str = ""
    """A regex with the key in such a file as its group; "" if the file is only the key."""

    def find(self) -> ApiKey | None:
        """Return the key; None if there is none. Raises UsageError for one that can't be a key."""
        if value := os.environ.get(self.variable, "").strip():
            return _checked(value, self.variable)
        for name in self.files:
            text = _read(expanded(name))
            found = re.search(self.pattern, text, re.MULTILINE) if self.pattern else None
            value = found[1] if found else "" if self.pattern else text.strip()
            if value:
                return _checked(value, name)
        return None

    def __str__(self) -> str:
        return " or ".join((self.variable, *self.files[:1]))


def same_key(one: str, other: str) -> bool:
    """Return whether two lines have the same public key, whatever their comments."""
    return one.split()[:2] == other.split()[:2]


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST)
    except OSError:
        return ""


def _checked(value: str, source: str) -> ApiKey:
    if not (value.isascii() and value.isprintable() and " " not in value):
        raise UsageError(
            f"{source} does not contain a valid API key.", hint="Put the key there, alone."
        )
    return ApiKey(value, source)
