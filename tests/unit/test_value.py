"""Our `dataclass`: as the standard library's, in all that the code uses of it."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from bootstrap import value


@pytest.mark.parametrize("dataclass", [value.dataclass, dataclasses.dataclass])
def test_a_value_is_what_the_standard_library_makes(dataclass: Callable[..., Any]) -> None:
    @dataclass(frozen=True)
    class Base:
        a: int
        b: list[int] = dataclasses.field(default_factory=list, compare=False, repr=False)

    @dataclass(frozen=True)
    class WithAnother(Base):
        c: str = "c"

        def __str__(self) -> str:
            return self.c

    @dataclass
    class Open:
        a: int = 1

    one = WithAnother(1)
    assert (one, {one}) == (WithAnother(1, [2]), {WithAnother(1)})
    assert one not in (WithAnother(2), Base(1), "c")
    assert repr(one).endswith("WithAnother(a=1, c='c')")
    assert str(one) == "c"
    assert dataclasses.replace(one, a=3) == WithAnother(3) != one
    assert copy.deepcopy(one) == one
    assert dataclasses.asdict(one) == {"a": 1, "b": [], "c": "c"}
    for change in (lambda: setattr(one, "a", 2), lambda: delattr(one, "a")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    with pytest.raises(TypeError, match="missing 1 required"):
        WithAnother()
    open_ = Open()
    open_.a = 2
    assert open_ == Open(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(open_)
