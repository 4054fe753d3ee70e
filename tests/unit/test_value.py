"""Our `dataclass`: as the standard library's, in all that the code uses of it."""

import copy
import dataclasses
from typing import Any, ClassVar

import pytest

from bootstrap import value


@pytest.mark.parametrize("own", [value, dataclasses])
def test_boxstraps_own_dataclass_decorator_behaves_as_pythons(own: Any) -> None:
    @own.dataclass(frozen=True)
    class Base:
        a: int
        of_all: ClassVar[int] = 7
        b: list[int] = own.field(default_factory=list, compare=False, repr=False)

    @own.dataclass(frozen=True)
    class WithAnother(Base):
        c: str = "c"

    @own.dataclass
    class Open:
        a: int = 1

        def __repr__(self) -> str:
            return "its own"

    one = WithAnother(1)
    assert (one, {one}) == (WithAnother(1, [2]), {WithAnother(1)})
    assert one not in (WithAnother(2), Base(1), "c")
    assert repr(one).endswith("WithAnother(a=1, c='c')")
    assert (one.of_all, WithAnother.c, hasattr(Base, "b")) == (7, "c", False)
    assert [each.default for each in dataclasses.fields(one)][::2] == [dataclasses.MISSING, "c"]
    assert own.replace(one, a=3) == dataclasses.replace(one, a=3) == WithAnother(3) != one
    assert copy.deepcopy(one) == one
    assert dataclasses.asdict(one) == {"a": 1, "b": [], "c": "c"}
    for change in (lambda: setattr(one, "a", 2), lambda: delattr(one, "a")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    for args, given in ((), {}), ((1, [], "c", 2), {}), ((1,), {"d": 2}):
        with pytest.raises(TypeError, match=r"missing 1 required|takes|argument 'd'"):
            WithAnother(*args, **given)
    open_ = Open()
    open_.a = 2
    assert (open_, repr(open_)) == (Open(2), "its own")
    with pytest.raises(TypeError, match="unhashable"):
        hash(open_)
