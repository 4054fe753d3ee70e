"""A result as plain data: what `--json` prints follows from the result's class alone.

Its JSON Schema (`document_types`) and what the library returns follow from the same class.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any, ClassVar, NamedTuple


class Document:
    """A value that is printed as a JSON object: of its fields, in their order.

    Where the object differs, `KEYS` names its keys: "cost" is the attribute of that name,
    "box=known.name" another one, "why or None" null where it is empty, "cost:4" rounded to so many
    digits, "node?" left out where it is None, "price??" left out where `absent` says so; "**run"
    stands for all keys of that attribute, and "**" for all fields.
    """

    KEYS: ClassVar[str] = "**"

    def absent(self) -> Collection[str]:
        """Return the keys that are missing now: those that may be, and are None."""
        keys = keys_of(type(self))
        return {key.name for key in keys if key.is_maybe and value_at(self, key.path) is None}


class Key(NamedTuple):
    """A key of an object, and the attribute whose value it has."""

    name: str
    path: str
    is_maybe: bool = False
    is_null_if_empty: bool = False
    is_merged: bool = False
    digits: int | None = None
    is_nullable: bool = False


def _keys_of(kind: Any) -> tuple[Key, ...]:  # noqa: ANN401 - any class
    names = [*(getattr(kind, "_fields", ()) or getattr(kind, "__dataclass_fields__", ()))]
    own = tuple(Key(name.rstrip("_"), name) for name in names)
    written = getattr(kind, "KEYS", "**").split(", ")
    return tuple(key for each in written for key in (own if each == "**" else (_parse(each),)))


keys_of: Callable[[Any], tuple[Key, ...]] = functools.cache(_keys_of)
"""Return the keys of a class, in the order in which they are printed; () if it has none."""


def _parse(written: str) -> Key:
    if written.startswith("**"):
        return Key("", written[2:], is_merged=True)
    text = written.removesuffix(" or None")
    plain, _, digits = text.partition(":")
    left, _, path = plain.partition("=")
    name = left.rstrip("?")
    rounded = int(digits) if digits else None
    is_nullable = text != written or "??" in left
    return Key(name, path or name, name != left, text != written, False, rounded, is_nullable)


def value_at(value: Any, path: str) -> Any:  # noqa: ANN401 - any attribute
    """Return the attribute at a dotted path; None where one on the way is None."""
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


def document(value: Any) -> Any:  # noqa: ANN401, PLR0911 - any value, each kind in its way
    """Return the value as plain data, for JSON. Raises TypeError if it is none."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {key: document(each) for key, each in value.items()}
    if keys := keys_of(type(value)):
        return _object(value, keys)
    if isinstance(value, frozenset | list | tuple):
        return [document(at) for at in (sorted(value) if isinstance(value, frozenset) else value)]
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if hasattr(value, "__fspath__"):
        return os.fspath(value)
    raise TypeError(f"a result of type {type(value).__name__} is no JSON")


def _object(value: object, keys: tuple[Key, ...]) -> dict[str, Any]:
    absent = value.absent() if isinstance(value, Document) else ()
    found = dict[str, Any]()
    for key in keys:
        got = value_at(value, key.path)
        if key.is_merged:
            found |= {} if got is None else document(got)
        elif key.name not in absent:
            found[key.name] = None if key.is_null_if_empty and not got else document(got)
            if key.digits is not None and got is not None:
                found[key.name] = round(got, key.digits)
    return found
