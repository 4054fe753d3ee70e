"""The key with which a provider's API is asked: where the user has it, and whether it is one."""

import os
import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from bootstrap.errors import UsageError
from bootstrap.paths import expanded, open_regular

_LONGEST = 4096


@dataclass(frozen=True)
class ApiKey:
    value: str = field(repr=False)
    source: str


@dataclass(frozen=True)
class KeyPlaces:
    variable: str
    files: tuple[str, ...]
    """Files that the provider's own tools write, in the order in which they are read."""
    pattern: str = ""
    """A regex with the key in such a file as one of its groups; "" if the file is only the key."""
    library: ClassVar[str] = ""
    """A package that asking this provider needs, which is not always there."""
    extra: ClassVar[str] = ""  # the extra of ours that brings it

    @property
    def missing(self) -> str:
        """The line that installs what asking this provider needs; "" if it is there."""
        names = self.library.split(".") if self.library else ()
        is_there = all(find_spec(".".join(names[: at + 1])) for at in range(len(names)))
        return "" if is_there else f"pip install 'boxstrap[{self.extra}]'"

    def find(self) -> ApiKey | None:
        """Return the key; None if there is none, or an extra is missing. Raises UsageError for one
        that can't be a key."""
        if value := os.environ.get(self.variable, "").strip():
            return checked_key(value, self.variable)
        for name in self.files:
            text = _read(expanded(name))
            found = re.search(self.pattern, text, re.MULTILINE) if self.pattern else None
            value = _group(found) if self.pattern else text.strip()
            if value:
                return checked_key(value, name)
        return None

    def __str__(self) -> str:
        return f"{self.places}{f' (needs: {self.missing})' if self.missing else ''}"

    @property
    def places(self) -> str:
        """Where the user puts it."""
        return " or ".join((self.variable, *self.files[:1]))


def _group(found: re.Match[str] | None) -> str:
    return next(filter(None, found.groups()), "") if found else ""


def same_key(one: str, other: str) -> bool:
    """Return whether two lines have the same public key, whatever their comments."""
    return one.split()[:2] == other.split()[:2]


def _read(path: Path) -> str:
    try:
        with open_regular(path) as file:
            return file.read(_LONGEST).decode("utf-8", "replace")
    except OSError:
        return ""


def checked_key(value: str, source: str) -> ApiKey:
    """Return the key. Raises UsageError for one that can't be a key."""
    if not (value.isascii() and value.isprintable() and " " not in value):
        raise UsageError(
            f"{source} does not contain a valid API key.", hint="Put the key there, alone."
        )
    return ApiKey(value, source)
