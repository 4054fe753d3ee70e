"""Read JSON with comments and trailing commas, as editors write it, and change single values.

A change replaces the text of one value or adds one member; all comments, blanks
and lines are kept. A text that can't be parsed is not changed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

Value = object
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n]+)
    |(?P<line>//[^\r\n]*)
    |(?P<block>/\*.*?\*/)
    |(?P<string>"(?:[^"\\\x00-\x1f]|\\.)*")
    |(?P<word>-?[0-9][0-9.eE+-]*|true|false|null)
    |(?P<mark>[{}\[\]:,])""",
    re.VERBOSE | re.DOTALL,
)
_DEEPEST = 100


class JsoncError(ValueError):
    """The text is not JSON with comments, or has a value of another type at that path."""


@dataclass
class _Node:
    """A value and its position in the text."""

    start: int
    end: int
    value: Value
    members: dict[str, _Node] = field(default_factory=dict)
    """The members of an object; of duplicate names the last one, which is the one that counts."""
    first: int = -1
    """Where the first member or item starts."""
    last: int = -1
    """Where the last one ends."""
    comma: bool = False
    """Whether a comma follows the last one."""
    quiet: int = -1
    """Where the last token or comment before the closing bracket ends."""


def read_jsonc(text: str) -> Value:
    """Parse the text; an empty text is an empty object, as in editors. Raises JsoncError."""
    node = _JsoncReader(text).whole()
    return {} if node is None else node.value


def with_value(text: str, path: Sequence[str], value: Value) -> str:
    """Return the text with `value` at `path`; missing objects along the path are created.

    Raises JsoncError if the text can't be parsed, or a value along the path is not an object.
    """
    node = _JsoncReader(text).whole()
    if node is None:
        # Only comments: they stay, and an object is added after them.
        begin = text if not text or text.endswith("\n") else text + _end(text)
        return begin + with_value("{}", path, value) + "\n"
    rest = list(path)
    while rest:
        if not isinstance(node.value, dict):
            raise JsoncError("the value there is not an object")
        inner = node.members.get(rest[0])
        if inner is None:
            new: Value = value
            for name in reversed(rest[1:]):
                new = {name: new}
            return _checked(_insert(text, node, f"{json.dumps(rest[0])}: ", new), path, value)
        node = inner
        rest.pop(0)
    return _checked(text[: node.start] + _dump(text, value, node) + text[node.end :], path, value)


def with_item(text: str, path: Sequence[str], item: Value) -> str:
    """Return the text with `item` added to the list at `path`, if missing. Raises JsoncError."""
    node = _JsoncReader(text).whole()
    for name in path:
        node = node.members.get(name) if node is not None else None
    if node is None:
        return with_value(text, path, [item])
    if not isinstance(node.value, list):
        raise JsoncError("the value there is not a list")
    if item in node.value:
        return text
    return _checked(_insert(text, node, "", item), path, [*node.value, item])


def value_at(value: Value, path: Sequence[str]) -> Value:
    """Return the value at `path`, or None if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _checked(text: str, path: Sequence[str], value: Value) -> str:
    if value_at(read_jsonc(text), path) != value:
        raise JsoncError("it could not be changed safely")
    return text


def _insert(text: str, node: _Node, head: str, value: Value) -> str:
    """Add a member or an item at the end of an object or a list."""
    inside = text[node.start : node.end]
    if node.first >= 0 and "\n" not in inside:
        comma = " " if node.comma else ", "
        return text[: node.quiet] + comma + head + json.dumps(value) + text[node.quiet :]
    end = _end(text)
    indent = _indent(text, node)
    added = f"{end}{indent}{head}{_spread(value, indent, end)}"
    if node.first < 0:
        close = "" if "\n" in text[node.quiet : node.end] else end + _margin(text, node.start)
        return text[: node.quiet] + added + close + text[node.quiet :]
    comma = "" if node.comma else ","
    return text[: node.last] + comma + text[node.last : node.quiet] + added + text[node.quiet :]


def _dump(text: str, value: Value, node: _Node) -> str:
    return _spread(value, _margin(text, node.start), _end(text))


def _spread(value: Value, indent: str, end: str) -> str:
    """Return the value as JSON; an object or a list goes over several lines."""
    step = _step(indent)
    lines = json.dumps(value, indent=step, ensure_ascii=False).split("\n")
    return (end + indent).join(lines)


def _indent(text: str, node: _Node) -> str:
    """Return the indentation of the members of `node`."""
    if node.first >= 0:
        before = text[node.start : node.first].rpartition("\n")[2]
        if not before.strip() and "\n" in text[node.start : node.first]:
            return before
    outer = _margin(text, node.start)
    return outer + _step(outer)


def _margin(text: str, position: int) -> str:
    """Return the indentation of the line at `position`."""
    line = text[text.rfind("\n", 0, position) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _step(indent: str) -> str:
    return "\t" if indent.startswith("\t") else " " * min(len(indent) or 4, 4)


def _end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


class _JsoncReader:
    """Reads a text into nodes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0
        self._before = self._at
        """Where the last token or comment ended."""
        self._kind = ""
        self._word = ""
        self._start = 0
        self._next()

    def whole(self) -> _Node | None:
        """Parse the whole text as one value; None if it has only comments and blanks."""
        if not self._kind:
            return None
        node = self._value(0)
        if self._kind:
            raise JsoncError(f"there is more after its end, at character {self._start}")
        return node

    def _next(self) -> None:
        """Advance to the next token, skipping blanks and comments."""
        self._before = self._at
        while self._at < len(self._text):
            found = _TOKEN.match(self._text, self._at)
            if not found:
                raise JsoncError(f"character {self._at} is unexpected")
            self._start, self._at = self._at, found.end()
            self._kind, self._word = found.lastgroup or "", found.group()
            if self._kind in ("line", "block"):
                self._before = self._at
            elif self._kind != "blank":
                return
        self._kind = self._word = ""

    def _value(self, depth: int) -> _Node:
        if depth > _DEEPEST:
            raise JsoncError("it is nested too deep")
        start = self._start
        if self._word in ("{", "["):
            return self._container("}" if self._word == "{" else "]", depth)
        if self._kind not in ("string", "word"):
            raise JsoncError(f"a value is missing at character {start}")
        node = _Node(start, self._at, _loaded(self._word))
        self._next()
        return node

    def _container(self, close: str, depth: int) -> _Node:
        node = _Node(self._start, -1, {} if close == "}" else [])
        self._next()
        while self._word != close or self._kind != "mark":
            if node.first >= 0 and not node.comma:
                raise JsoncError(f"a comma is missing before character {self._start}")
            if node.first < 0:
                node.first = self._start
            self._member(node, depth)
            node.comma = self._kind == "mark" and self._word == ","
            if node.comma:
                self._next()
        node.quiet, node.end = self._before, self._at
        self._next()
        return node

    def _member(self, node: _Node, depth: int) -> None:
        if isinstance(node.value, list):
            item = self._value(depth + 1)
            node.value.append(item.value)
            node.last = item.end
            return
        if self._kind != "string":
            raise JsoncError(f"a name is missing at character {self._start}")
        name = str(_loaded(self._word))
        self._next()
        if self._word != ":" or self._kind != "mark":
            raise JsoncError(f"a colon is missing at character {self._start}")
        self._next()
        member = self._value(depth + 1)
        node.members[name] = member
        if isinstance(node.value, dict):
            node.value[name] = member.value
        node.last = member.end


def _loaded(token: str) -> Value:
    try:
        return json.loads(token)
    except ValueError as error:
        raise JsoncError(f"{token[:40]} is no value") from error
