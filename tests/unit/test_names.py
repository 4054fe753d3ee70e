"""Class names are unique in the whole tree."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]


def classes(within: ast.AST) -> Iterator[ast.ClassDef]:
    """Yield the classes of a module at any depth; expressions can't contain one."""
    for node in ast.iter_child_nodes(within):
        if isinstance(node, ast.ClassDef):
            yield node
        if not isinstance(node, ast.expr):
            yield from classes(node)


@pytest.mark.slow
def test_a_class_name_stands_for_one_thing_in_the_whole_tree() -> None:
    places = defaultdict(list)
    for folder in ("bootstrap", "tests"):
        for file in sorted((TOP / folder).rglob("*.py")):
            for node in classes(ast.parse(file.read_text(encoding="utf-8"))):
                places[node.name].append(f"{file.relative_to(TOP)}:{node.lineno}")
    assert {name: at for name, at in places.items() if len(at) > 1} == {}
