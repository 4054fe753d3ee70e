"""The JSON Schema of profiles, by which editors complete and check them.

`python -m bootstrap.profile.schema_json > profiles/schema.json` renews the
shipped file; a test says when that is due.
"""

from __future__ import annotations

import json
import sys

from bootstrap.profile.schema import Profile


def schema() -> dict[str, object]:
    """The schema as plain data."""
    generated = _without_titles(Profile.model_json_schema())
    assert isinstance(generated, dict)  # noqa: S101  (a schema is a mapping)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "boxstrap profile",
        **generated,
    }


def text() -> str:
    """The schema as the shipped file holds it."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _without_titles(node: object) -> object:
    """Titles made of the names of keys say nothing that the keys don't."""
    if isinstance(node, list):
        return [_without_titles(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _without_titles(value)
        for key, value in node.items()
        if not (key == "title" and isinstance(value, str))
    }


if __name__ == "__main__":
    sys.stdout.write(text())
