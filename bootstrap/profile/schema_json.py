"""The JSON Schema of profiles, by which editors complete and check them.

`python -m bootstrap.profile.schema_json > profiles/schema.json` renews the
shipped file; a test says when that is due. It is written here rather than by
pydantic, whose wording changes from version to version.
"""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Collection, Iterable
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from bootstrap.profile.schema import Profile, Section
from bootstrap.profile.shape import NOT_YAML
from bootstrap.profile.values import Rule

Json = dict[str, Any]

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean"}
_LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}
_LONGEST = {"array": "maxItems", "object": "maxProperties"}


def schema() -> Json:
    """The schema as plain data."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "boxstrap profile",
        **_section(Profile, without=NOT_YAML),
    }


def text() -> str:
    """The schema as the shipped file holds it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _section(model: type[Section], without: Collection[str] = ()) -> Json:
    fields = {name: info for name, info in model.model_fields.items() if name not in without}
    found: Json = {
        "type": "object",
        "description": (model.__doc__ or "").strip(),
        "additionalProperties": False,
        "properties": {name: _key(info) for name, info in fields.items()},
    }
    required = [name for name, info in fields.items() if info.is_required()]
    return {**found, "required": required} if required else found


def _key(info: FieldInfo) -> Json:
    found = _type(info.annotation, info.metadata)
    if not info.is_required() and info.default_factory is None:
        found["default"] = info.default
    return {**found, "description": info.description}


def _type(annotation: Any, metadata: Iterable[object] = ()) -> Json:  # noqa: ANN401  (any type)
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(args[0], [*args[1:], *metadata])
    if origin in (Union, types.UnionType):
        (inner,) = (arg for arg in args if arg is not type(None))
        return _or_nothing(_type(inner, metadata))
    if origin is Literal:
        return {"enum": list(args)}
    if origin is list:
        found: Json = {"type": "array", "items": _type(args[0])}
    elif origin is dict:
        names, values = map(_type, args)
        found = _or_nothing(
            {"type": "object", "propertyNames": names, "additionalProperties": values}
        )
    elif annotation in _PLAIN:
        found = {"type": _PLAIN[annotation]}
    else:  # a section whose keys are all commented out says nothing, and that is right
        return _or_nothing(_section(annotation))
    return _limited(found, metadata)


def _or_nothing(found: Json) -> Json:
    kind = found["type"]
    return found if isinstance(kind, list) else {**found, "type": [kind, "null"]}


def _limited(found: Json, metadata: Iterable[object]) -> Json:
    for each in metadata:
        if isinstance(each, Rule):
            found |= each.json_schema()
        elif isinstance(each, FieldInfo):
            found = _limited(found, each.metadata)
        elif hasattr(each, "max_length"):
            kinds = found["type"] if isinstance(found["type"], list) else [found["type"]]
            found[_LONGEST[kinds[0]]] = each.max_length
        else:
            found |= {
                word: getattr(each, name) for name, word in _LIMITS.items() if hasattr(each, name)
            }
    return found


if __name__ == "__main__":
    sys.stdout.write(text())
