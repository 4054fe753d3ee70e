"""What a result prints follows from its class."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import TypeAdapter

from bootstrap.tasks.documents import shape
from bootstrap.value import Document, document


class Colour(Enum):
    RED = "red"


class TwoNumbers(NamedTuple):
    is_: int
    names: tuple[str, ...]


@dataclass
class Plain(Document):
    """Of its fields."""

    colour: Colour
    at: Path
    pairs: tuple[TwoNumbers, ...]


@dataclass
class Derived(Document):
    """By `KEYS`."""

    KEYS = "**plain, first=why or None, cost:2, node?, price??, deep=plain.at, found"

    plain: Plain | None
    why: str
    cost: float
    node: str | None
    price: float | None
    found: frozenset[str]

    def absent(self) -> Collection[str]:
        return {*super().absent(), "price"} - ({"price"} if self.node else set())


PLAIN = Plain(Colour.RED, Path("/x"), (TwoNumbers(1, ("b", "a")),))
OF_PLAIN = {"colour": "red", "at": "/x", "pairs": [{"is": 1, "names": ["b", "a"]}]}


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (PLAIN, OF_PLAIN),
        (
            Derived(PLAIN, "", 1.239, None, 3.0, frozenset({"b", "a"})),
            {**OF_PLAIN, "first": None, "cost": 1.24, "deep": "/x", "found": ["a", "b"]},
        ),
        (
            Derived(None, "so", 1.0, "n", None, frozenset()),
            {"first": "so", "cost": 1.0, "node": "n", "price": None, "deep": None, "found": []},
        ),
    ],
)
def test_json_output_has_exactly_the_keys_of_its_schema_in_the_same_order(
    value: Document, printed: dict[str, Any]
) -> None:
    assert list(document(value).items()) == list(printed.items())
    schema = TypeAdapter(shape(type(value))).json_schema()
    assert set(printed) <= set(schema["properties"])
    assert set(schema["required"]) <= set(printed)
    assert list(printed) == [key for key in schema["properties"] if key in printed]
