"""The schema as a tree of plain words: what is expected at each key.

It is derived from the models, so that reading, `--set` and the messages know
what pydantic knows, and there is one place to add a key.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from bootstrap.profile.schema import Profile, Section

Kind = Literal["text", "whole", "number", "truth", "list", "map", "section"]

_PLAIN: dict[object, Kind] = {
    str: "text",
    int: "whole",
    float: "number",
    bool: "truth",
    list: "list",
    dict: "map",
}
EXPECTED: dict[Kind, str] = {
    "text": "text",
    "whole": "a whole number",
    "number": "a number",
    "truth": "true or false",
    "list": "a list, as in [a, b]",
    "map": "names and values, as in {NAME: value}",
    "section": "a section with keys of its own",
}
# Keys of Profile that are not keys of the YAML.
NOT_YAML = frozenset({"name"})


@dataclass(frozen=True)
class Shape:
    """What is expected at a key. `choices` lists the only words that will do."""

    kind: Kind
    optional: bool = False
    choices: tuple[str, ...] = ()
    fields: dict[str, Shape] = field(default_factory=dict)

    def leaves(self, prefix: str = "") -> Iterator[str]:
        """The dotted key of everything that holds a value."""
        for name, shape in self.fields.items():
            if shape.kind == "section":
                yield from shape.leaves(f"{prefix}{name}.")
            else:
                yield prefix + name


@lru_cache(maxsize=1)
def profile_shape() -> Shape:
    """What a whole profile looks like."""
    whole = _of_model(Profile, optional=False)
    return Shape("section", fields={k: v for k, v in whole.fields.items() if k not in NOT_YAML})


def _of_model(model: type[Section], *, optional: bool) -> Shape:
    fields = {name: _of(info.annotation) for name, info in model.model_fields.items()}
    return Shape("section", optional, fields=fields)


def _of(annotation: Any, *, optional: bool = False) -> Shape:  # noqa: ANN401  (a type, of any kind)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _of(args[0], optional=optional)
    if origin in (Union, types.UnionType):
        (inner,) = (arg for arg in args if arg is not type(None))
        return _of(inner, optional=True)
    if origin is Literal:
        kind: Kind = "whole" if isinstance(args[0], int) else "text"
        return Shape(kind, optional, tuple(map(str, args)))
    plain = _PLAIN.get(origin or annotation)
    return Shape(plain, optional) if plain else _of_model(annotation, optional=optional)
