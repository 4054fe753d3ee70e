"""`dataclass`, with one `==`, `hash` and `repr` for all classes: what Python 3.13 makes quick.

Before it, the standard one compiles six functions for each class, which was a fifth of the
processor time of a command; this one compiles `__init__` alone. For what commands import at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any


def _compared(value: Any) -> tuple[object, ...]:  # noqa: ANN401
    own = type(value)
    if "_compared" not in vars(own):
        own._compared = tuple(f.name for f in dataclasses.fields(own) if f.compare)
    return tuple(getattr(value, name) for name in own._compared)


def _is_equal(one: object, other: object) -> bool:
    return _compared(one) == _compared(other) if type(one) is type(other) else NotImplemented


def _hash(value: object) -> int:
    return hash(_compared(value))


def _repr(value: Any) -> str:  # noqa: ANN401
    shown = [f.name for f in dataclasses.fields(value) if f.repr]
    parts = (f"{name}={getattr(value, name)!r}" for name in shown)
    return f"{type(value).__qualname__}({', '.join(parts)})"


def _set_once(value: object, name: str, content: object) -> None:
    if name in vars(value):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    vars(value)[name] = content


def _keep(_: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False) -> type | Callable:
        """As the standard library's, with `frozen` alone."""
        if cls is None:
            return partial(dataclass, frozen=frozen)
        methods = {"__eq__": _is_equal, "__hash__": _hash if frozen else None, "__repr__": _repr}
        if frozen:
            methods |= {"__setattr__": _set_once, "__delattr__": _keep}
        for name, method in methods.items():
            if name not in vars(cls):
                setattr(cls, name, method)
        return dataclasses.dataclass(cls, repr=False, eq=False)


__all__ = ["dataclass"]
