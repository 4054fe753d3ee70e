"""Checks what a command printed with `--json` against the schema that boxstrap ships for it.

Programs may rely on a schema's keys, and new ones may come. Here none may be missing in it: a
key that the types of `bootstrap/tasks/documents.py` don't have fails the test that sees it.
"""

import functools
import json
from collections.abc import Sequence
from typing import Any

from jsonschema import Draft202012Validator

from bootstrap.tasks.documents import DOCUMENTS, json_schema

_OF_NAMES = ("properties", "$defs")


def check_documents(argv: Sequence[str], out: str) -> None:
    """Check each line of a command's standard output, if it was called with `--json`."""
    words = argv[1 : argv.index("--")] if "--" in argv else argv[1:]
    name = next((word for word in words if word in DOCUMENTS), "")
    if "--json" not in words or not name:
        return
    for line in out.splitlines():
        for error in _validator(name).iter_errors(json.loads(line)):
            details = "\n".join(f"{one.json_path}: {one.message}" for one in error.context or ())
            raise AssertionError(
                f"{name} --json: {error.json_path}: {error.message}\n{details}\n"
                "Its type is in bootstrap/tasks/documents.py"
            )


@functools.cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(closed(json_schema(name)))


def closed(schema: Any) -> Any:
    """Return the schema with no other keys than those that it names."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: {name: closed(each) for name, each in value.items()}
        if key in _OF_NAMES
        else closed(value)
        for key, value in schema.items()
    }
    return {"additionalProperties": False, **found} if "properties" in schema else found
