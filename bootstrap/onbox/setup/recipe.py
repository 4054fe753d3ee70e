"""The recipe of a script, read without a shell: its steps, and its values as bash has them."""

from __future__ import annotations

import re

from .. import text_of
from ..values import Values

_WORD = r"(?:(?:'[^']*'|\\')+|[0-9]+)"
_LINE = re.compile(
    rf" *(?:#.*|step (?P<step>[a-z]+)|(?P<name>[A-Z_]+)="
    rf"(?:(?P<one>{_WORD})|\((?P<many>(?:\s*{_WORD})*)\s*\)))?\n"
)
_PIECE = re.compile(r"'([^']*)'|\\(')")
_BEFORE, _AFTER = "\nrecipe() {\n", "}\n\n# ---- the program "


class Recipe:
    """Its steps in their order, and its values; what it doesn't name is as in the program."""

    def __init__(self, page: str, defaults: str) -> None:
        self.page = page
        self.steps: list[str] = []
        self._texts: dict[str, str | list[str]] = {}
        self._read(defaults)
        self._read(page.partition(_BEFORE)[2].rpartition(_AFTER)[0])
        self.values = Values(self._texts)

    def _read(self, text: str) -> None:
        """Raises ValueError for what is no such text."""
        at = 0
        while at < len(text):
            line = _LINE.match(text, at)
            if not line:
                raise ValueError(f"this is no recipe: {text[at : at + 80]}")
            at = line.end()
            if line["step"]:
                self.steps.append(line["step"])
            elif line["one"] is not None:
                self._texts[line["name"]] = _plain(line["one"])
            elif line["name"]:
                self._texts[line["name"]] = [*map(_plain, re.findall(_WORD, line["many"]))]


def _plain(word: str) -> str:
    return _PIECE.sub(r"\1\2", word)


def read_recipe(page: str) -> Recipe:
    """Read that of the script at `page`."""
    with open(page, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return Recipe(file.read(), text_of("defaults.sh"))
