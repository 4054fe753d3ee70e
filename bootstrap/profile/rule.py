"""What a text of a profile must look like, and the message if it doesn't."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

LONGEST_TEXT = 4 * 1024
ANYTHING = r"(?s).+"

# Marks that turn or hide the direction of the text around them (UAX #9).
_DIRECTION = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_UNSEEN = {"Cc": "a control character", "Zl": "a line break", "Zp": "a line break"}


@dataclass(frozen=True)
class Rule:
    """What a text must look like, and how messages describe it.

    `longest` counts bytes of UTF-8. With `stays`, a path must not contain `..`.
    Without `leading_dash`, a text that a program would take for an option is refused.
    `finish` gets a text that passed, and returns the final text or raises ValueError.
    A rule annotates a field: `Annotated[str, USER]`.
    """

    expected: str
    pattern: str
    longest: int = LONGEST_TEXT
    stays: bool = False
    empty: bool = False
    leading_dash: bool = False
    finish: Callable[[str], str] | None = None

    def __call__(self, text: str) -> str:
        """Return `text`, or raise ValueError that says what is wrong with it."""
        wrong = self._wrong(text)
        if wrong:
            raise ValueError(wrong)
        return self.finish(text) if self.finish else text

    def _wrong(self, text: str) -> str:
        if not self.empty and not text.strip():
            return f"expected {self.expected}, got nothing"
        return _find_unseen(text) or self._out_of_bounds(text)

    def _out_of_bounds(self, text: str) -> str:
        size = len(text.encode())
        if size > self.longest:
            return f"{size:,} bytes are too long: {self.longest:,} at most"
        if text.startswith("-") and not self.leading_dash:
            return f"{shown(text)} starts with a dash: a program would take it for an option"
        if self.stays and ".." in text.split("/"):
            return f"{shown(text)} leaves its folder with '..'"
        if text and not re.fullmatch(self.pattern, text):
            return f"expected {self.expected}, got {shown(text)}"
        return ""

    def json_schema(self) -> dict[str, object]:
        """Return the rule as far as JSON Schema can express it: its \\w is ASCII only."""
        schema: dict[str, object] = {"type": "string", "maxLength": self.longest}
        if not self.empty:
            schema["minLength"] = 1
        if r"\w" not in self.pattern and self.pattern != ANYTHING:
            schema["pattern"] = f"^(?:{self.pattern})$"
        return schema


def fits(rule: Rule, text: str) -> bool:
    """Whether `text` passes a rule."""
    try:
        rule(text)
    except ValueError:
        return False
    return True


def shown(text: str, longest: int = 60) -> str:
    """Return `text` in quotes, shortened and safe to print on a terminal."""
    return repr(text if len(text) <= longest else text[: longest - 1] + "…")


def _find_unseen(text: str) -> str:
    for char in text:
        if char.isascii() and char.isprintable():
            continue
        kind = unicodedata.category(char)
        if kind == "Cs":
            return f"{shown(text)} is not UTF-8 text"
        if char in _DIRECTION:
            what = "a Unicode direction control"
        elif kind in _UNSEEN:
            what = _UNSEEN[kind]
        else:
            continue
        return f"{shown(text)} holds {what} (U+{ord(char):04X})"
    return ""
