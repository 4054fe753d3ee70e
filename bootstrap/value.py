"""`dataclass`, with one `__init__`, `==`, `hash` and `repr` for all classes: nothing is compiled.

The standard one compiles six functions for each class, and its import takes as long as an empty
program. For what commands import at once. The standard library's `fields`, `replace` and `asdict`
take these values too; `names` and `replace` of this module don't import it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

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
            if str(kind).startswith("ClassVar"):
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


__all__ = ["dataclass", "field", "names", "replace"]
