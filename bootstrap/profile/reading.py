"""Turn YAML nodes into values with origins, as the schema expects them.

YAML's surprises are caught here: where text is expected, `3.10`, `0600`, `22:22`,
`on` and dates are errors that say what YAML would have made of them and how to
write what was meant.

Merge profiles: mappings are merged; a later list or scalar replaces the earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from bootstrap.profile.fields import EXPECTED, Field, Kind
from bootstrap.profile.problems import Origin, ProfileProblem
from bootstrap.profile.schema import PROFILE
from bootstrap.profile.values import shown_value
from bootstrap.profile.yaml_source import REFUSED, Items, Keys, Node, Scalar, YamlFile, read_as
from bootstrap.text.nearest import nearest


@dataclass(frozen=True)
class Leaf:
    """A value that is replaced as a whole; `items` are the origins of a list's items."""

    value: object
    origin: Origin
    items: tuple[Origin, ...] = ()


@dataclass(frozen=True)
class Branch:
    """A mapping; `origin` is where its key is."""

    children: dict[str, Branch | Leaf] = field(default_factory=dict)
    origin: Origin | None = None


Tree = Branch | Leaf


def merge(base: Tree, over: Tree) -> Tree:
    """Return `over` on top of `base`. Neither is changed."""
    if not (isinstance(base, Branch) and isinstance(over, Branch)):
        return over
    return merge_branches(base, over)


def merge_branches(base: Branch, over: Branch) -> Branch:
    """Return `over` on top of `base`, both mappings."""
    children = dict(base.children)
    for key, child in over.children.items():
        children[key] = merge(children[key], child) if key in children else child
    return Branch(children, over.origin or base.origin)


def plain_values(tree: Tree) -> object:
    """Return the values without their origins."""
    if isinstance(tree, Leaf):
        return list(tree.value) if isinstance(tree.value, list) else tree.value
    return {key: plain_values(child) for key, child in tree.children.items()}


def origins(tree: Tree, prefix: str = "") -> dict[str, Origin]:
    """Return the origin of each value by its dotted key."""
    if isinstance(tree, Leaf):
        return {prefix: tree.origin}
    found: dict[str, Origin] = {}
    for key, child in tree.children.items():
        found |= origins(child, f"{prefix}.{key}" if prefix else key)
    return found


def origin_of(tree: Tree, path: tuple[str | int, ...]) -> Origin | None:
    """Return the nearest known origin for `path`: the item, the key, or the mapping around it."""
    if not path:
        return tree.origin
    step, rest = path[0], path[1:]
    if isinstance(tree, Branch):
        child = tree.children.get(str(step))
        return tree.origin if child is None else origin_of(child, rest) or tree.origin
    if isinstance(step, int) and step < len(tree.items):
        return tree.items[step]
    return tree.origin


_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?")
_TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_TEXT = Field("text")
_SCALARS = frozenset({"text", "whole", "number", "truth"})


def read_tree(source: YamlFile, label: str) -> tuple[Branch, list[ProfileProblem]]:
    """Return the values of a file, and the problems of this file alone."""
    reader = _TreeReader(label)
    tree = reader.section(source.keys, PROFILE, "")
    return tree, [*source.problems, *reader.problems]


def scalar_value(text: str, kind: Kind) -> object:
    """Return the value of `text` as a whole number, a number or true/false, as `kind` says.

    Raises ValueError that says what was expected.
    """
    if kind == "whole" and _WHOLE.fullmatch(text):
        return int(text)
    if kind == "number" and _NUMBER.fullmatch(text):
        return float(text)
    if kind == "truth" and text in _TRUTHS:
        return _TRUTHS[text]
    raise ValueError(f"expected {EXPECTED[kind]}, got {shown_value(text)}")


def choose(text: str, choices: Sequence[str]) -> str:
    """Return `text` if it is one of `choices`; raises ValueError with the nearest of them."""
    if text in choices:
        return text
    close = nearest(text, choices)
    hint = f"; did you mean {close}?" if close else ""
    raise ValueError(f"expected {' or '.join(choices)}, got {shown_value(text)}{hint}")


def unknown_key(name: str, prefix: str, fields: Iterable[str]) -> str:
    """Return the message for an unknown key in the section `prefix` ("" or "python.")."""
    known = list(fields)
    close = nearest(name, known)
    if close:
        return f"there is no such key; did you mean {prefix}{close}?"
    last = {key.rpartition(".")[2]: key for key in reversed([key for key, _ in PROFILE.leaves()])}
    close = last.get(name) or last.get(nearest(name, last), "")
    if close:
        return f"there is no such key here; did you mean {close}?"
    return f"there is no such key; there are: {', '.join(known)}"


class _TreeReader:
    def __init__(self, label: str) -> None:
        self.label = label
        self.problems: list[ProfileProblem] = []

    def section(self, node: Keys, field: Field, key: str, line: int | None = None) -> Branch:
        children: dict[str, Tree] = {}
        prefix = f"{key}." if key else ""
        for name, value in node.entries:
            full = prefix + word(name.text)
            inner = field.fields.get(name.text)
            if inner is None:
                self._wrong(name, full, unknown_key(name.text, prefix, field.fields))
                continue
            child = self._value(value, inner, full, name.line)
            if child is not None:
                children[name.text] = child
        return Branch(children, self._at(line or node.line))

    def _value(self, node: Node, field: Field, key: str, line: int) -> Tree | None:
        if isinstance(node, Scalar) and node.tag in ("null", REFUSED):
            return self._nothing(node, field, key, line)
        if field.kind == "section" and isinstance(node, Keys):
            return self.section(node, field, key, line)
        if field.kind == "map" and isinstance(node, Keys):
            return self._map(node, key, line)
        if isinstance(node, Items) and (field.kind == "list" or (field.joins and node.items)):
            return self._list(node, field, key, line)
        if field.kind in _SCALARS and isinstance(node, Scalar):
            return self._scalar(node, field, key)
        self._wrong(node, key, f"expected {EXPECTED[field.kind]}, got {_kind_of(node)}")
        return None

    def _nothing(self, node: Scalar, field: Field, key: str, line: int) -> Tree | None:
        if node.tag == REFUSED:
            return None
        if field.optional:
            return Leaf(None, self._at(line))
        if field.kind in ("section", "map"):  # all its keys are commented out
            return Branch({}, self._at(line))
        self._wrong(node, key, f"expected {EXPECTED[field.kind]}, got nothing")
        return None

    def _map(self, node: Keys, key: str, line: int) -> Branch:
        children: dict[str, Tree] = {}
        for name, value in node.entries:
            full = f"{key}.{word(name.text)}"
            if name.tag != "str":
                self._wrong(name, full, _surprise(name))
                continue
            leaf = self._text(value, full)
            if leaf is not None:
                children[name.text] = leaf
        return Branch(children, self._at(line))

    def _list(self, node: Items, field: Field, key: str, line: int) -> Leaf | None:
        read = self._sections(field.item) if field.item and field.item.section else self._text
        items = [read(item, f"{key}[{index}]") for index, item in enumerate(node.items)]
        found = [item for item in items if item is not None]
        if len(found) < len(items):  # the others would have wrong indexes
            return None
        if field.joins:
            return Leaf(", ".join(str(item.value) for item in found), self._at(line))
        places = tuple(item.origin for item in found)
        return Leaf([item.value for item in found], self._at(line), places)

    def _sections(self, field: Field) -> Callable[[Node, str], Leaf | None]:
        """Return a reader of list items that have keys of their own."""

        def read(node: Node, key: str) -> Leaf | None:
            if isinstance(node, Keys):
                known = len(self.problems)
                tree = self.section(node, field, key)
                return (
                    Leaf(plain_values(tree), self._at(node.line))
                    if len(self.problems) == known
                    else None
                )
            self._wrong(node, key, f"expected {EXPECTED['section']}, got {_kind_of(node)}")
            return None

        return read

    def _text(self, node: Node, key: str) -> Leaf | None:
        if isinstance(node, Scalar):
            return None if node.tag == REFUSED else self._scalar(node, _TEXT, key)
        self._wrong(node, key, f"expected text, got {_kind_of(node)}")
        return None

    def _scalar(self, node: Scalar, field: Field, key: str) -> Leaf | None:
        try:
            return Leaf(_read_scalar(node, field), self._at(node.line))
        except ValueError as error:
            self._wrong(node, key, str(error))
            return None

    def _at(self, line: int) -> Origin:
        return Origin(self.label, line)

    def _wrong(self, node: Node, key: str, message: str) -> None:
        self.problems.append(ProfileProblem(self._at(node.line), key, message))


def _read_scalar(node: Scalar, field: Field) -> object:
    if field.kind == "text":
        if node.tag != "str":
            raise ValueError(_surprise(node))
        return choose(node.text, field.choices) if field.choices else node.text
    if node.tag == "str":
        raise ValueError(
            f"expected {EXPECTED[field.kind]}, got the text {shown_value(node.text)}"
            + _without_quotes(node.text, field.kind)
        )
    value = scalar_value(node.text, field.kind)
    if field.choices and str(value) not in field.choices:
        raise ValueError(f"expected {' or '.join(field.choices)}, got {node.text}")
    return value


def _without_quotes(text: str, kind: Kind) -> str:
    try:
        scalar_value(text, kind)
    except ValueError:
        return ""
    return "; write it without quotes"


def _surprise(node: Scalar) -> str:
    """Return the message for a plain word that YAML would not read as text."""
    if node.tag == "null":
        return "expected text, got nothing"
    made = _made(node)
    advice = f'write it in quotes: "{node.text}"' if len(node.text) <= 60 else "write it in quotes"
    return f"YAML reads {word(node.text)} as {made}; {advice}"


def _made(node: Scalar) -> str:
    value = read_as(node)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return "a number" if str(value) == node.text else f"the number {value}"
    return "a date" if node.tag == "timestamp" else "something other than text"


def _kind_of(node: Node) -> str:
    if isinstance(node, Items):
        return "a list"
    if isinstance(node, Keys):
        return "keys and values"
    return shown_value(node.text)


def word(text: str) -> str:
    """Return `text` shortened, and in quotes only if it has unprintable characters."""
    short = text if len(text) <= 60 else text[:59] + "…"
    return short if short.isprintable() else shown_value(short)
