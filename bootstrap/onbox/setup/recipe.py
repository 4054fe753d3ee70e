"""The recipe of a script, read without a shell: its steps, and its values as bash has them."""

from __future__ import annotations

import re

from .. import text_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    Text = str | list[str] | dict[str, str]

_WORD = r"(?:(?:'[^']*'|\\')+|[0-9]+)"
_LINE = re.compile(
    rf" *(?:#.*|step (?P<step>[a-z]+)|(?:declare -gA )?(?P<name>[A-Z_]+)="
    rf"(?:(?P<one>{_WORD})|\((?P<many>(?:\s*(?:\[{_WORD}\]=)?{_WORD})*)\s*\)))?\n"
)
_ITEM = re.compile(rf"\s*(?:\[({_WORD})\]=)?({_WORD})")
_PIECE = re.compile(r"'([^']*)'|\\(')")
_BEFORE, _AFTER = "\nrecipe() {\n", "}\n\n# ---- the program "


class Recipe:
    """Its steps in their order, and its values; what it doesn't name is as in the program."""

    def __init__(self, page: str, defaults: str) -> None:
        self.page = page
        self.values: dict[str, Text] = {}
        self.steps: list[str] = []
        self._read(defaults)
        self._read(page.partition(_BEFORE)[2].rpartition(_AFTER)[0])

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
            elif line["name"]:
                self.values[line["name"]] = _text_of(line)

    def one(self, name: str) -> str:
        text = self.values.get(name, "")
        return text if isinstance(text, str) else ""

    def many(self, name: str) -> list[str]:
        texts = self.values.get(name, [])
        return texts if isinstance(texts, list) else []

    @property
    def needs(self) -> dict[str, str]:
        """What each step needs, words in one text."""
        needs = self.values["NEEDS"]
        assert isinstance(needs, dict)  # noqa: S101 - of the program
        return needs


def _text_of(line: re.Match[str]) -> Text:
    if line["one"] is not None:
        return _plain(line["one"])
    items = [(item[1], _plain(item[2])) for item in _ITEM.finditer(line["many"])]
    if items and items[0][0]:
        return {_plain(key): text for key, text in items}
    return [text for _, text in items]


def _plain(word: str) -> str:
    return _PIECE.sub(r"\1\2", word)


def read_recipe(page: str) -> Recipe:
    """Read that of the script at `page`."""
    with open(page, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return Recipe(file.read(), text_of("defaults.sh"))
