"""`dataclass`, with one `__init__`, `==`, `hash` and `repr` for all classes: nothing is compiled.

The standard one compiles six functions for each class, and its import takes as long as an empty
program. For what commands import at once. The standard library's `fields`, `replace` and `asdict`
take these values too; `names` and `replace` of this module don't import it.
"""

import functools
import os
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

_NONE: Any = object()


class _Field:
    """What is said of a field, as by the standard library's `field`."""

    default, default_factory, type = _NONE, _NONE, None
    compare = repr = True

    def __init__(self, **said: Any) -> None:  # noqa: ANN401
        vars(self).update(said)


class _StandardFields:
    """The attribute by which the standard library knows a dataclass, made when it is asked for."""

    def __get__(self, _: object, kind: Any) -> Any:  # noqa: ANN401
        import dataclasses

        said: dict[str, Any] = {"__annotations__": {}}
        for name, each in kind._fields.items():
            told = {key: value for key, value in vars(each).items() if value is not _NONE}
            said["__annotations__"][name] = told.pop("type")
            said[name] = dataclasses.field(**told)
        made: Any = type(kind.__name__, (), said)
        return dataclasses.dataclass(made, init=False, repr=False, eq=False).__dataclass_fields__


def _fill(value: object, fields: dict[str, _Field], args: Any, given: dict[str, object]) -> None:  # noqa: ANN401
    given |= zip(fields, args, strict=False)
    content, kind = vars(value), type(value).__name__
    for name, field in fields.items():
        if name in given:
            content[name] = given.pop(name)
        elif field.default is not _NONE:
            content[name] = field.default
        elif field.default_factory is not _NONE:
            content[name] = field.default_factory()
        else:
            raise TypeError(f"{kind}: missing 1 required argument: {name!r}")
    if given or len(args) > len(fields):
        raise TypeError(f"{kind}: takes no argument {next(iter(given), len(args))!r}")


def _compared(value: Any) -> tuple[object, ...]:  # noqa: ANN401
    return tuple(getattr(value, name) for name, each in value._fields.items() if each.compare)


def _is_equal(one: object, other: object) -> bool:
    return _compared(one) == _compared(other) if type(one) is type(other) else NotImplemented


def _hash(value: object) -> int:
    return hash(_compared(value))


def _repr(value: Any) -> str:  # noqa: ANN401
    parts = (f"{n}={getattr(value, n)!r}" for n, each in value._fields.items() if each.repr)
    return f"{type(value).__qualname__}({', '.join(parts)})"


def _keep(_: object, name: str, *__: object) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"field {name!r} can't be changed")


if TYPE_CHECKING:
    from dataclasses import dataclass, field, replace
else:
    field = _Field

    def dataclass(cls: type | None = None, /, *, frozen: bool = False) -> type | Callable:
        """As the standard library's, with `frozen` alone."""
        if cls is None:
            return partial(dataclass, frozen=frozen)
        fields = {}
        for base in reversed(cls.__mro__[1:]):
            fields |= vars(base).get("_fields", {})
        for name, kind in cls.__annotations__.items():
            if str(kind).startswith(("ClassVar", "typing.ClassVar")):
                continue
            said = vars(cls).get(name, _NONE)
            fields[name] = said if isinstance(said, _Field) else _Field(default=said)
            fields[name].type = kind
            if fields[name].default is not _NONE:
                setattr(cls, name, fields[name].default)
            elif said is not _NONE:
                delattr(cls, name)

        def init(self: object, /, *args: object, **given: object) -> None:
            _fill(self, fields, args, given)

        cls._fields, cls.__dataclass_fields__ = fields, _StandardFields()
        methods = {"__init__": init, "__eq__": _is_equal, "__repr__": _repr, "__hash__": None}
        if frozen:
            methods |= {"__hash__": _hash, "__setattr__": _keep, "__delattr__": _keep}
        for name, method in methods.items():
            if name not in vars(cls):
                setattr(cls, name, method)
        return cls

    def replace(value: object, /, **changes: object) -> object:
        """As the standard library's."""
        return type(value)(**{**{name: getattr(value, name) for name in names(value)}, **changes})


def names(of: Any) -> Mapping[str, object]:  # noqa: ANN401 - a class, or a value
    """Return the names of the fields of one of these, or of the standard library's."""
    return getattr(of, "_fields", None) or of.__dataclass_fields__  # type: ignore[no-any-return]


# -- as JSON


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


def with_texts(value: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401
    """Return plain data with each text in it changed, but no key."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {key: with_texts(each, change) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [with_texts(each, change) for each in value]
    return value


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


__all__ = [
    "Document",
    "Key",
    "dataclass",
    "document",
    "field",
    "keys_of",
    "names",
    "replace",
    "value_at",
    "with_texts",
]
