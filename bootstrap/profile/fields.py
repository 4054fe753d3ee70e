"""Building blocks of the schema: a section is a class, and each key is a line of it.

The annotation says what a key holds and what it takes from the user; `field` adds its
default, limits and description. Reading, `--set`, checking, the JSON Schema and the docs all
use `Section.fields`. It is plain Python because every command that reads a profile waits for
its import (docs/adr/0024-a-schema-in-plain-python.md).

What a key of a profile takes from the user, apart from what it says about a box.

Every key of the schema is marked with one of these; a test checks that. What a repository's
own profile takes needs the user's consent (`profile/consent.py`).
"""

from __future__ import annotations

import enum
import keyword
import types
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

from bootstrap.profile.values import Rule

T = TypeVar("T")


class Permission(enum.Enum):
    """What is taken; the values are the words in the list that the user agrees to."""

    NOTHING = "nothing"
    SECRET = "secret"  # noqa: S105
    FILE = "file"
    REPOSITORY = "repository"
    PUBLIC_KEY = "public key"
    DEPENDENCY = "dependency"
    DATA = "data"
    BUCKET = "bucket"
    MONEY = "money"
    ACCOUNT = "account"


Free = Annotated[T, Permission.NOTHING]
Secrets = Annotated[T, Permission.SECRET]
File = Annotated[T, Permission.FILE]
Repository = Annotated[T, Permission.REPOSITORY]
PublicKeys = Annotated[T, Permission.PUBLIC_KEY]
Dependencies = Annotated[T, Permission.DEPENDENCY]
Data = Annotated[T, Permission.DATA]
Buckets = Annotated[T, Permission.BUCKET]
Money = Annotated[T, Permission.MONEY]
Account = Annotated[T, Permission.ACCOUNT]


S = TypeVar("S", bound="Section")
Kind = Literal["text", "whole", "number", "truth", "list", "map", "section"]

EXPECTED: dict[Kind, str] = {
    "text": "text",
    "whole": "a whole number",
    "number": "a number",
    "truth": "true or false",
    "list": "a list, as in [a, b]",
    "map": "names and values, as in {NAME: value}",
    "section": "a section with keys of its own",
}
_PLAIN: dict[object, Kind] = {str: "text", int: "whole", float: "number", bool: "truth"}
REQUIRED = object()
"""The default of a key that must be given."""


@dataclass(frozen=True)
class Field:
    """What a key may hold; `choices` lists the only words allowed."""

    kind: Kind
    optional: bool = False
    choices: tuple[str, ...] = ()
    rule: Rule | None = None
    item: Field | None = None
    """What each item of a list, or each value of a map, must be."""
    name_rule: Rule | None = None
    """What the names in a map must look like."""
    joins: bool = False
    """Whether a list of such texts is taken, too: as one text, with commas."""
    section: type[Section] | None = None
    takes: Permission | None = None
    default: object = REQUIRED
    """A type is called for each profile, so that no two profiles share a list."""
    description: str = ""
    gt: float | None = None
    ge: float | None = None
    le: float | None = None

    @property
    def fields(self) -> dict[str, Field]:
        """The keys inside a section."""
        return self.section.fields if self.section else {}

    def leaves(self, prefix: str = "") -> Iterator[tuple[str, Field]]:
        """Yield the dotted key and field of everything inside that holds a value."""
        for name, inner in self.fields.items():
            if inner.section:
                yield from inner.leaves(f"{prefix}{name}.")
            else:
                yield prefix + name, inner


class _Given(dict[str, Any]):
    """What a line of the schema says in addition to its annotation."""


def field(description: str, **given: object) -> Any:  # noqa: ANN401 - it stands for a value
    """Declare a key: its `default`, and limits of a number (`gt`, `ge`, `le`).

    Without `default`, an optional key is None, a list or map is empty, and a section has
    its defaults; any other key must be given. With `joins`, a list of texts is taken as one
    text, with commas.
    """
    return _Given(given, description=description)


class Section:
    """A section of a profile: one attribute per key, immutable.

    The attribute of a key that is a Python keyword ends with `_`.
    """

    fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls) -> None:
        cls.fields = {
            name.rstrip("_"): Field(**{**_read(annotation), **given})
            for name, annotation in cls.__annotations__.items()
            if isinstance(given := vars(cls).get(name), _Given)
        }

    def __init__(self, **values: object) -> None:
        for name, each in self.fields.items():
            made = each.default() if isinstance(each.default, type) else each.default
            vars(self)[self.attribute(name)] = values.pop(name, made)
        vars(self).update(values)

    @staticmethod
    def attribute(key: str) -> str:
        """Return the name of a key's attribute."""
        return f"{key}_" if keyword.iskeyword(key) else key

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name}: a profile stays as it was read")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def replace(self: S, **values: object) -> S:
        """Return a copy with other values, which are not checked."""
        return type(self)(**{**vars(self), **values})

    def changed(self, names: Collection[str]) -> dict[str, Any]:
        """Return the attributes among `names` that differ from their default."""
        default, own = vars(type(self)()), vars(self)
        return {name: own[name] for name in own if name in names and own[name] != default[name]}

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, in the order of the schema."""
        values = ((name, getattr(self, name)) for name in type(self).__annotations__)
        return {name.rstrip("_"): _plain(value) for name, value in values}


def _plain(value: object) -> object:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.as_dict() if isinstance(value, Section) else value


def _read(annotation: Any) -> dict[str, Any]:  # noqa: ANN401 - a type, of any kind
    """Return the arguments of `Field` that an annotation stands for."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        marks = {"takes" if isinstance(mark, Permission) else "rule": mark for mark in args[1:]}
        return {**_read(args[0]), **marks}
    if origin in (Union, types.UnionType):
        (inner,) = (arg for arg in args if arg is not type(None))
        return {**_read(inner), "optional": True, "default": None}
    if origin is Literal:
        return {"kind": _PLAIN[type(args[0])], "choices": tuple(map(str, args))}
    if origin is list:
        item = {**_read(args[0]), "default": REQUIRED}
        return {"kind": "list", "item": Field(**item), "default": list}
    if origin is dict:
        names, item = map(_read, args)
        return {"kind": "map", "name_rule": names["rule"], "item": Field(**item), "default": dict}
    kind = _PLAIN.get(annotation)
    return (
        {"kind": kind}
        if kind
        else {"kind": "section", "section": annotation, "default": annotation}
    )
