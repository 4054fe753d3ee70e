"""The types of what `document` makes of a class, for its JSON Schema."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from enum import Enum
from inspect import isclass
from pathlib import PurePath
from types import UnionType
from typing import Any, ClassVar, Union, get_args, get_origin

from typing_extensions import NotRequired, TypedDict, is_typeddict

from bootstrap.value import keys_of

TABLE = "Keys"  # the name of a type that was written as a table of its keys
_NONE, _UNIONS = type(None), (Union, UnionType)


@functools.cache
def typed_dict(kind: Any) -> Any:  # noqa: ANN401 - a class
    """Return the type of what is printed of a class with keys."""
    types: dict[str, Any] = {}
    if is_typeddict(kind):
        return kind
    for key in keys_of(kind):
        found, can_lack = _hint(kind, key.path)
        if key.is_merged:
            lacks = can_lack or get_origin(found) in _UNIONS
            merged = typed_dict(_without_none(found)).__annotations__
            types |= {
                at: NotRequired[of] if lacks and get_origin(of) is not NotRequired else of
                for at, of in merged.items()
            }
            continue
        is_left_out = key.is_maybe and not key.is_nullable
        printed = shape(_without_none(found) if is_left_out else found)
        if key.is_null_if_empty or (can_lack and not is_left_out):
            printed = printed | None
        types[key.name] = NotRequired[printed] if key.is_maybe else printed
    return _made(kind.__name__, kind.__doc__, types)


def keyed(name: str, described: str, keys: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return the type of an object with these keys: `key?` may be missing, `**` stands for all keys
    of a class."""
    types: dict[str, Any] = {}
    for key, kind in keys.items():
        if key == "**":
            types |= typed_dict(kind).__annotations__
        else:
            types[key.rstrip("?")] = NotRequired[shape(kind)] if "?" in key else shape(kind)
    return _made(name, described, types)


def _made(name: str, described: str | None, types: Mapping[str, Any]) -> Any:  # noqa: ANN401
    made: Any = TypedDict(name, types)  # type: ignore[misc]
    made.__doc__ = described
    return made


def shape(kind: Any) -> Any:  # noqa: ANN401, PLR0911 - any type
    """Return the type of what is printed of a value."""
    if isinstance(kind, dict):
        return keyed(TABLE, "", kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin in _UNIONS:
        return Union[tuple(map(shape, args))]  # noqa: UP007 - of how many
    if origin is NotRequired:
        return NotRequired[shape(args[0])]
    if isclass(origin) and args and issubclass(origin, Mapping):
        return dict[shape(args[0]), shape(args[1])]  # type: ignore[misc]
    if isclass(origin) and args:
        return list[shape(args[0])]  # type: ignore[misc]
    if isclass(kind) and issubclass(kind, Enum | PurePath):
        return str
    has_keys = is_typeddict(kind) or (isclass(kind) and keys_of(kind))
    return typed_dict(kind) if has_keys else kind


def _hint(kind: Any, path: str) -> tuple[Any, bool]:  # noqa: ANN401
    """Return the type of the attribute at a dotted path, and whether one on the way may be None."""
    can_lack = False
    for name in path.split("."):
        can_lack = can_lack or get_origin(kind) in _UNIONS
        kind = _without_none(kind)
        owner = next(one for one in kind.__mro__ if name in _own_annotations(one))
        kind = _own_annotations(owner)[name]
        if isinstance(kind, str):
            kind = eval(kind, {**_all_names(), **vars(sys.modules[owner.__module__])})  # noqa: S307
    return (get_args(kind)[0] if get_origin(kind) is ClassVar else kind), can_lack


def _without_none(kind: Any) -> Any:  # noqa: ANN401
    left = [one for one in get_args(kind) if one is not _NONE]
    return left[0] if get_origin(kind) in (*_UNIONS, type) else kind


@functools.cache
def _own_annotations(kind: Any) -> dict[str, Any]:  # noqa: ANN401
    getters = {
        name: getattr(one, "fget", getattr(one, "func", None))
        for name, one in [*vars(kind).items()]
    }
    given = {name: of.__annotations__["return"] for name, of in getters.items() if of}
    return {**vars(kind).get("__annotations__", {}), **given}


@functools.cache
def _all_names() -> dict[str, Any]:
    """What a module imports for type checkers alone is in another one of ours."""
    ours = [module for name, module in [*sys.modules.items()] if name.startswith("bootstrap.")]
    return {name: one for module in ours for name, one in [*vars(module).items()] if isclass(one)}
