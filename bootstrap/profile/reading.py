"""Turn YAML nodes into values with origins, merge them, and build a Profile of them.

YAML's surprises are caught here: where text is expected, `3.10`, `0600`, `22:22`, `on` and dates
are errors that say what YAML would have made of them and how to write what was meant. Strict: a
value of the wrong type is a problem, and is never converted. Mappings are merged; a later list or
scalar replaces the earlier one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bootstrap.profile import values
from bootstrap.profile.schema import PROFILE, Profile, misfits
from bootstrap.profile.values import (
    EXPECTED,
    LONGEST_LIST,
    NOTIFY_URL,
    REQUIRED,
    RESULTS_KEY,
    Field,
    Kind,
    Section,
    nearest,
    shown_value,
)
from bootstrap.profile.yaml_source import (
    DEFAULT,
    REFUSED,
    Items,
    Keys,
    Node,
    Origin,
    ProfileProblem,
    Scalar,
    YamlFile,
    read_as,
    word,
)
from bootstrap.value import dataclass, field


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


def merge_branches(base: Branch, over: Branch) -> Branch:
    """Return `over` on top of `base`. Neither is changed."""
    children = dict(base.children)
    for key, child in over.children.items():
        before = children.get(key)
        if isinstance(before, Branch) and isinstance(child, Branch):
            children[key] = merge_branches(before, child)
        else:
            children[key] = child
    return Branch(children, over.origin or base.origin)


def plain_values(tree: Tree) -> object:
    """Return the values without their origins."""
    if isinstance(tree, Leaf):
        return list(tree.value) if isinstance(tree.value, list) else tree.value
    return {key: plain_values(child) for key, child in tree.children.items()}


def origins(tree: Tree, prefix: str = "") -> dict[str, Origin]:
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
_NUMBER = r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?"
_TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_TEXT = Field("text")
_SCALARS = frozenset({"text", "whole", "number", "truth"})


def read_tree(source: YamlFile, label: str) -> tuple[Branch, list[ProfileProblem]]:
    reader = _TreeReader(label)
    tree = reader.section(source.keys, PROFILE, "")
    return tree, [*source.problems, *reader.problems]


def scalar_value(text: str, kind: Kind) -> object:
    """Return the value of `text` as a whole number, a number or true/false, as `kind` says. Raises
    ValueError that says what was expected."""
    if kind == "whole" and _WHOLE.fullmatch(text):
        return int(text)
    if kind == "number" and re.fullmatch(_NUMBER, text):
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
    if close := last.get(name) or last.get(nearest(name, last), ""):
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
        inner = field.item if field.item and field.item.section else None
        items = [
            self._item(item, inner, f"{key}[{index}]")
            if inner
            else self._text(item, f"{key}[{index}]")
            for index, item in enumerate(node.items)
        ]
        found = [item for item in items if item is not None]
        if len(found) < len(items):  # the others would have wrong indexes
            return None
        if field.joins:
            return Leaf(", ".join(str(item.value) for item in found), self._at(line))
        places = tuple(item.origin for item in found)
        return Leaf([item.value for item in found], self._at(line), places)

    def _item(self, node: Node, field: Field, key: str) -> Leaf | None:
        """Read an item of a list that has keys of its own."""
        if isinstance(node, Keys):
            known = len(self.problems)
            tree = self.section(node, field, key)
            is_right = len(self.problems) == known
            return Leaf(plain_values(tree), self._at(node.line)) if is_right else None
        self._wrong(node, key, f"expected {EXPECTED['section']}, got {_kind_of(node)}")
        return None

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
        is_off = node.text == "0" and field.rule is values.TIME_OR_0  # a time that has no unit
        if node.tag != "str" and not is_off:
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


Where = tuple[str | int, ...]  # the path to a value: keys and list indexes

Wrong = list[tuple[Where, str]]  # the path of each wrong value, and what is wrong with it


class WrongValuesError(ValueError):
    """A profile has wrong values; `found` lists all of them."""

    def __init__(self, found: Wrong) -> None:
        self.found = found
        super().__init__("; ".join(f"{_dotted(where)}: {message}" for where, message in found))


def build(tree: Branch, name: str) -> tuple[Profile | None, list[ProfileProblem]]:
    """Return the profile that `tree` describes, or the problems with its values."""
    values = plain_values(tree)
    assert isinstance(values, dict)  # noqa: S101  (a Branch is a mapping)
    try:
        return make_profile(values, name), []
    except WrongValuesError as error:
        return None, [
            ProfileProblem(origin_of(tree, where) or DEFAULT, _dotted(where), message)
            for where, message in error.found
        ]


def make_profile(values: Mapping[str, object], name: str = "") -> Profile:
    """Make a profile of these values, each of its key's kind. Raises WrongValuesError."""
    wrong: Wrong = []
    given = _attributes(Profile, values, (), wrong)
    if not wrong:
        profile = Profile(**given, name=name)
        wrong = _together(profile)
    if wrong:
        raise WrongValuesError(wrong)
    return profile


def _attributes(
    section: type[Section], values: Mapping[str, object], where: Where, wrong: Wrong
) -> dict[str, Any]:
    """Return a section's attributes; add problems, nested ones too, to `wrong`."""
    fields = section.fields
    missing = [name for name, each in fields.items() if each.default is REQUIRED]
    wrong += [((*where, name), "is missing here") for name in missing if name not in values]
    return {
        name: _value(each, values[name], (*where, name), wrong)
        for name, each in fields.items()
        if name in values
    }


def _value(field: Field, value: Any, where: Where, wrong: Wrong) -> object:  # noqa: ANN401
    """Check one value and return it; the result only counts if nothing is wrong."""
    if value is None and field.optional:
        return None
    if field.item and len(value) > LONGEST_LIST:
        wrong.append((where, f"{len(value)} entries; {LONGEST_LIST} at most"))
        return None
    if field.section:
        return field.section(**_attributes(field.section, value, where, wrong))
    if field.item is None:
        return _scalar(field, value, where, wrong)
    if field.kind == "list":
        return [_value(field.item, item, (*where, i), wrong) for i, item in enumerate(value)]
    name_field = Field("text", rule=field.name_rule)
    for name in value:
        _value(name_field, name, (*where, name), wrong)
    return {name: _value(field.item, item, (*where, name), wrong) for name, item in value.items()}


def _scalar(field: Field, value: str | float, where: Where, wrong: Wrong) -> object:
    try:
        if field.choices:
            choose(str(value), field.choices)
        elif isinstance(value, str):
            return field.rule(value) if field.rule else value
        elif field.kind in ("whole", "number"):
            if field.gt is not None and not value > field.gt:
                raise ValueError(f"expected more than {field.gt:g}")
            if field.ge is not None and not value >= field.ge:
                raise ValueError(f"expected {field.ge:g} or more")
            if field.le is not None and not value <= field.le:
                raise ValueError(f"expected {field.le:,g} or less")
    except ValueError as error:
        wrong.append((where, str(error)))
    return float(value) if field.kind == "number" else value


def _dotted(where: Where) -> str:
    key = ""
    for step in where:
        key += f"[{step}]" if isinstance(step, int) else f".{word(step)}"
    return key.removeprefix(".")


def _together(profile: Profile) -> Wrong:
    """Return problems of values that are valid alone but contradict one another."""
    python, train = profile.python, profile.train
    wrong: Wrong = [
        (("env", name), "is also listed under secrets; its value would be in this file")
        for name in profile.secrets
        if name in profile.env
    ]

    def refuse(section: str, key: str, why: str) -> None:
        wrong.append(((section, key), why))

    if python.lock and python.requirements is not None:
        refuse("python", "lock", "python.requirements is set too; one of them decides")
    if python.lock and python.conda:
        refuse("python", "lock", "python.conda is set too; one of them decides")
    if python.lock and python.installer == "pip":
        refuse("python", "lock", "pip can't read it; use python.installer: uv")
    if python.as_of and (python.lock or python.installer == "pip"):
        refuse("python", "as_of", "only uv can choose by dates, and a lock has chosen already")
    if python.as_of and python.torch_backend != "auto":
        refuse("python", "as_of", "needs python.torch_backend: auto; torch's indexes have no dates")
    if train and train.at_boot == "resume" and not train.resume:
        refuse("train", "at_boot", "needs train.resume: the command that resumes the training")
    if train and train.nodes > 1 and train.at_boot != "leave":
        why = "a box can't begin alone what train.nodes train together; use at_boot: leave"
        refuse("train", "at_boot", why)
    if train and train.results_to and not train.results:
        refuse("train", "results_to", "needs train.results: what to upload")
    if train and train.results_to and RESULTS_KEY not in profile.secrets:
        why = f"{RESULTS_KEY} must be listed under secrets: the box uploads with this key"
        refuse("train", "results_to", why)
    if profile.notify and NOTIFY_URL not in profile.secrets:
        why = f"{NOTIFY_URL} must be listed under secrets: the box posts to this address"
        wrong.append((("notify",), why))
    return wrong + [(("data", number, key), why) for number, key, why in misfits(profile.data)]
