"""The JSON Schema of profiles, with which editors complete and check them.

`python -m tools.docs.profile_schema > profiles/schema.json` updates the
shipped file; a test fails when it is out of date.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from bootstrap.profile import Profile
from bootstrap.profile.values import LONGEST_LIST, REQUIRED, Field, Kind, Section

Json = dict[str, Any]

_TYPES: dict[Kind, str] = {
    "text": "string",
    "whole": "integer",
    "number": "number",
    "truth": "boolean",
    "list": "array",
    "map": "object",
}
_LIMITS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum"}


def schema() -> Json:
    """Return the schema as plain data."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "boxstrap profile",
        **_section(Profile),
    }


def text() -> str:
    """Return the schema as the text of the shipped file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _section(section: type[Section]) -> Json:
    found: Json = {
        "type": "object",
        "description": (section.__doc__ or "").strip(),
        "additionalProperties": False,
        "properties": {name: _key(field) for name, field in section.fields.items()},
    }
    required = [name for name, field in section.fields.items() if field.default is REQUIRED]
    return {**found, "required": required} if required else found


def _key(field: Field) -> Json:
    found = _values(field)
    if field.default is not REQUIRED and not isinstance(field.default, type):
        found["default"] = field.default
    return {**found, "description": field.description}


def _values(field: Field) -> Json:
    """Return the schema of a key's value: null for a section or map with all keys commented out."""
    if field.choices:
        whole = field.kind == "whole"
        return {"enum": [int(choice) if whole else choice for choice in field.choices]}
    found: Json = {"type": _TYPES.get(field.kind)}
    if field.section:
        found = _section(field.section)
    elif field.kind == "list" and field.item:
        found |= {"items": _values(field.item), "maxItems": LONGEST_LIST}
    elif field.item and field.name_rule:
        names, values = Field("text", rule=field.name_rule), field.item
        found |= {"propertyNames": _values(names), "additionalProperties": _values(values)}
        found["maxProperties"] = LONGEST_LIST
    elif field.rule:
        found |= field.rule.json_schema()
    limits = {word: getattr(field, name) for name, word in _LIMITS.items()}
    found |= {word: limit for word, limit in limits.items() if limit is not None}
    if field.joins:
        found |= {"type": ["string", "array"], "items": {"type": "string"}}
        found |= {"minItems": 1, "maxItems": LONGEST_LIST}
    if field.optional or (field.kind in ("section", "map") and field.default is not REQUIRED):
        kinds = found["type"] if field.joins else [found["type"]]
        found["type"] = [*kinds, "null"]
    return found


if __name__ == "__main__":
    sys.stdout.write(text())
