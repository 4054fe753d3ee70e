"""The generated part of docs/reference/json.md: each key of each document that --json prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bootstrap.tasks.documents import DOCUMENTS, json_schema

COMMON = "AnyDocument"
"""The type whose keys every document has."""


def sections() -> str:
    """Return a section for each command, and one for the types that they share."""
    schemas = {name: json_schema(name) for name in sorted(DOCUMENTS)}
    types = {name: kind for schema in schemas.values() for name, kind in schema["$defs"].items()}
    lines = [line for name, schema in schemas.items() for line in _command(name, schema, types)]
    written = {name: _type(name, types[name]) for name in types}
    lines += ["## Types", ""]
    for name in sorted(_needed(lines, written)):
        lines += written[name]
    return "\n".join(lines).rstrip()


def _needed(lines: list[str], types: dict[str, list[str]]) -> set[str]:
    """Return the types that these lines name, and those that these name in turn."""
    found, todo = {COMMON}, [*lines, *types[COMMON]]
    while todo:
        new = {name for name in re.findall(r"\[(\w+)\]\(#", todo.pop()) if name in types} - found
        found |= new
        todo += [line for name in new for line in types[name]]
    return found


def _type(name: str, kind: dict[str, Any]) -> list[str]:
    described = " ".join(kind.get("description", "").split())
    always = frozenset(kind.get("required", ()))
    return [f"### {name}", "", described, "", *_keys(kind, always)]


def _command(name: str, schema: dict[str, Any], types: dict[str, Any]) -> Iterator[str]:
    yield from (f"## {name}", "")
    if "description" in schema:
        yield from (" ".join(str(schema["description"]).split()), "")
    common = frozenset(types[COMMON]["properties"])
    for document in schema.get("anyOf", [schema]):
        if document.get("title", "").endswith("Line"):
            yield from (f"A line, {document['title']}: {document.get('description', '')}", "")
            yield from _keys(document, frozenset(document["required"]))
        else:
            yield from _keys(document, _always(document), common)


def _always(document: dict[str, Any]) -> frozenset[str]:
    """Return the keys of every document without `error`, of one box and of several."""
    then = document.get("then", {})
    ways = [frozenset(way["required"]) for way in then.get("anyOf", [then]) if "required" in way]
    of_one = [way for way in ways if way != {"boxes"}]
    return frozenset.intersection(*of_one) if of_one else frozenset()


def _keys(
    kind: dict[str, Any], always: frozenset[str], known: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Yield a table of its keys but those that are `known`."""
    own = {key: what for key, what in kind.get("properties", {}).items() if key not in known}
    if not own:
        yield from ("No keys of its own.", "")
        return
    yield from ("| key | value | |", "| --- | --- | --- |")
    for key, what in own.items():
        yield f"| `{key}` | {_value(what)} | {'always' if key in always else ''} |"
    yield ""


def _value(what: dict[str, Any]) -> str:
    """Return what a key may have, as words."""
    if reference := what.get("$ref"):
        name = str(reference).rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in what:
        return f"`{what['const']}`"
    if "enum" in what:
        return " or ".join(f"`{value}`" for value in what["enum"])
    if "anyOf" in what:
        return " or ".join(_value(one) for one in what["anyOf"])
    kind = str(what.get("type", "anything"))
    if kind == "array":
        return f"list of {_value(what.get('items', {}))}"
    if kind == "object" and isinstance(inner := what.get("additionalProperties"), dict) and inner:
        return f"for each name: {_value(inner)}"
    return {"string": "text", "boolean": "true or false", "object": "an object"}.get(kind, kind)
