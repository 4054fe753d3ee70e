"""JSON with comments and trailing commas, as editors write it: read, and changed in one place.

A change touches the text of one value or adds one member; every comment, blank
and line stays. What can't be read is not changed.
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
    """The text is no JSON with comments, or has something else at that place."""


@dataclass
class _Node:
    """A value and where it stands in the text."""

    start: int
    end: int
    value: Value
    members: dict[str, _Node] = field(default_factory=dict)
    """Of an object; the last of several with one name, which is the one that counts."""
    first: int = -1
    """Where the first member or item begins."""
    last: int = -1
    """Where the last one ends."""
    comma: bool = False
    """Whether a comma follows the last one."""
    quiet: int = -1
    """Where the last token before the closing bracket ends, comments counted."""


def read(text: str) -> Value:
    """The value; an empty text is an empty object, as editors take it. Raises JsoncError."""
    node = _JsoncReader(text).whole()
    return {} if node is None else node.value


def with_value(text: str, path: Sequence[str], value: Value) -> str:
    """The text with `value` at `path`, objects on the way made where there are none.

    Raises JsoncError where the text can't be read, or something on the way is no object.
    """
    node = _JsoncReader(text).whole()
    if node is None:
        # Comments alone: they stay, and an object follows them.
        begin = text if not text or text.endswith("\n") else text + _end(text)
        return begin + with_value("{}", path, value) + "\n"
    rest = list(path)
    while rest:
        if not isinstance(node.value, dict):
            raise JsoncError("something else than an object is there")
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
    """The text with `item` in the list at `path`, if it isn't in it. Raises JsoncError."""
    node = _JsoncReader(text).whole()
    for name in path:
        node = node.members.get(name) if node is not None else None
    if node is None:
        return with_value(text, path, [item])
    if not isinstance(node.value, list):
        raise JsoncError("something else than a list is there")
    if item in node.value:
        return text
    return _checked(_insert(text, node, "", item), path, [*node.value, item])


def at(value: Value, path: Sequence[str]) -> Value:
    """What is at `path`; None where there is nothing."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _checked(text: str, path: Sequence[str], value: Value) -> str:
    if at(read(text), path) != value:
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
    """The value over several lines, where it is an object or a list."""
    step = _step(indent)
    lines = json.dumps(value, indent=step, ensure_ascii=False).split("\n")
    return (end + indent).join(lines)


def _indent(text: str, node: _Node) -> str:
    """How members of `node` are indented."""
    if node.first >= 0:
        before = text[node.start : node.first].rpartition("\n")[2]
        if not before.strip() and "\n" in text[node.start : node.first]:
            return before
    outer = _margin(text, node.start)
    return outer + _step(outer)


def _margin(text: str, position: int) -> str:
    """The blanks at the beginning of the line."""
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
        """Where the last token ended, comments counted."""
        self._kind = ""
        self._word = ""
        self._start = 0
        self._next()

    def whole(self) -> _Node | None:
        """The one value; None for a text of comments and blanks."""
        if not self._kind:
            return None
        node = self._value(0)
        if self._kind:
            raise JsoncError(f"there is more after its end, at character {self._start}")
        return node

    def _next(self) -> None:
        """Go to the next token that is neither blank nor comment."""
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
