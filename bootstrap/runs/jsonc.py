"""Read JSON with comments and trailing commas, as editors write it, and change single values.

A change replaces the text of one value or adds one member; all comments, blanks and lines are kept.
A text that can't be parsed is not changed. Comments are blanked out, so `json` reads what is left,
and a place in it is the same place in the text.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Value = object
_STRING = r'"(?:[^"\\]|\\.)*(?:"|\Z)'
_COMMENT = re.compile(rf"{_STRING}|//[^\r\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_BLANKS = re.compile(r"[ \t\r\n]*")


class JsoncError(ValueError):
    """The text is not JSON with comments, or has a value of another type at that path."""


def read_jsonc(text: str) -> Value:
    """Parse the text; an empty text is an empty object, as in editors. Raises JsoncError."""
    return _Text(text).value


def with_value(text: str, path: Sequence[str], value: Value) -> str:
    """Return the text with `value` at `path`; missing objects along the path are created. Raises
    JsoncError if the text can't be parsed, or a value along the path is not an object."""
    whole = _Text(text)
    if whole.is_empty:
        # Only comments: they stay, and an object is added after them.
        begin = text if not text or text.endswith("\n") else text + _end(text)
        return begin + with_value("{}", path, value) + "\n"
    start = whole.start
    for depth, name in enumerate(path):
        if whole.json[start] != "{":
            raise JsoncError("the value there is not an object")
        inner = whole.member(start, name)
        if inner is None:
            new: Value = value
            for missing in reversed(path[depth + 1 :]):
                new = {missing: new}
            return _checked(whole.insert(start, f"{json.dumps(name)}: ", new), path, value)
        start = inner
    changed = _spread(value, _margin(text, start), _end(text))
    return _checked(text[:start] + changed + text[whole.end_of(start) :], path, value)


def with_item(text: str, path: Sequence[str], item: Value) -> str:
    """Return the text with `item` added to the list at `path`, if missing. Raises JsoncError."""
    whole = _Text(text)
    found = value_at(whole.value, path)
    if found is None:
        return with_value(text, path, [item])
    if not isinstance(found, list):
        raise JsoncError("the value there is not a list")
    start: int | None = whole.start
    for name in path:
        start = None if start is None else whole.member(start, name)
    if item in found or start is None:
        return text
    return _checked(whole.insert(start, "", item), path, [*found, item])


def value_at(value: Value, path: Sequence[str]) -> Value:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


class _JsonMember(NamedTuple):
    name: str
    first: int  # where it starts, with its name
    start: int
    end: int


class _Text:
    """A text, beside it without comments, and as JSON: with each character in its place."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._bare = _COMMENT.sub(_blanked, re.sub("^\ufeff", " ", text))
        self.json = _LAST_COMMA.sub(_blanked, self._bare)
        self.start = _after_blanks(self.json, 0)
        self.is_empty = self.start == len(self.json)
        try:
            self.value = {} if self.is_empty else json.loads(self.json, parse_constant=_refused)
        except (ValueError, RecursionError) as error:
            raise JsoncError(str(error)) from error

    def end_of(self, start: int) -> int:
        return json.JSONDecoder().raw_decode(self.json, start)[1]

    def member(self, start: int, name: str) -> int | None:
        """Return where a member's value starts; of duplicate names the last one counts."""
        found = [member.start for member in self._members(start) if member.name == name]
        return found[-1] if found else None

    def insert(self, start: int, head: str, value: Value) -> str:
        """Return the text with a member or an item at the end of an object or a list."""
        text, close = self.text, self.end_of(start) - 1
        members = [*self._members(start)]
        quiet = len(text[:close].rstrip(" \t\r\n"))  # where what is before the bracket ends
        last = members[-1].end if members else close
        comma = "" if not members or "," in self._bare[last:close] else ","
        if members and "\n" not in text[start:close]:
            return f"{text[:quiet]}{comma} {head}{json.dumps(value)}{text[quiet:]}"
        end, indent = _end(text), self._indent(start, members)
        added = f"{end}{indent}{head}{_spread(value, indent, end)}"
        if not members:
            closing = "" if "\n" in text[quiet:close] else end + _margin(text, start)
            return text[:quiet] + added + closing + text[quiet:]
        return text[:last] + comma + text[last:quiet] + added + text[quiet:]

    def _indent(self, start: int, members: Sequence[_JsonMember]) -> str:
        if members and "\n" in (before := self.text[start : members[0].first]):
            indent = before.rpartition("\n")[2]
            if not indent.strip():
                return indent
        outer = _margin(self.text, start)
        return outer + _step(outer)

    def _members(self, start: int) -> Iterator[_JsonMember]:
        at = _after_blanks(self.json, start + 1)
        while self.json[at] not in "}]":
            first, name = at, ""
            if self.json[start] == "{":
                name, at = json.JSONDecoder().raw_decode(self.json, at)
                at = _after_blanks(self.json, _after_blanks(self.json, at) + 1)
            end = self.end_of(at)
            yield _JsonMember(name, first, at, end)
            at = _after_blanks(self.json, end)
            at = _after_blanks(self.json, at + 1) if self.json[at] == "," else at


def _checked(text: str, path: Sequence[str], value: Value) -> str:
    if value_at(read_jsonc(text), path) != value:
        raise JsoncError("it could not be changed safely")
    return text


def _spread(value: Value, indent: str, end: str) -> str:
    """Return the value as JSON; an object or a list goes over several lines."""
    lines = json.dumps(value, indent=_step(indent), ensure_ascii=False).split("\n")
    return (end + indent).join(lines)


def _blanked(found: re.Match[str]) -> str:
    """Blank out what was found; a string, and a comment that does not end, stay as they are."""
    text = found[0]
    is_open = text.startswith("/*") and (len(text) < 4 or not text.endswith("*/"))
    return text if text.startswith('"') or is_open else re.sub(r"[^\r\n]", " ", text)


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _refused(word: str) -> Value:
    raise ValueError(f"{word} is no value")


def _margin(text: str, position: int) -> str:
    line = text[text.rfind("\n", 0, position) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _step(indent: str) -> str:
    return "\t" if indent.startswith("\t") else " " * min(len(indent) or 4, 4)


def _end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"
