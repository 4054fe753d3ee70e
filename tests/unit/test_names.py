"""One name, one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

TOP = Path(__file__).parents[2]


def test_a_class_name_stands_for_one_thing_in_the_whole_tree() -> None:
    places = defaultdict(list)
    for folder in ("bootstrap", "tests"):
        for file in sorted((TOP / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{file.relative_to(TOP)}:{node.lineno}")
    assert {name: at for name, at in places.items() if len(at) > 1} == {}
