"""`make lint`: class names are unique in the whole tree, and docstrings name what is there."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[1]


def classes(within: ast.AST) -> Iterator[ast.ClassDef]:
    """Yield the classes of a module at any depth; expressions can't contain one."""
    for node in ast.iter_child_nodes(within):
        if isinstance(node, ast.ClassDef):
            yield node
        if not isinstance(node, ast.expr):
            yield from classes(node)


def twice() -> Iterator[str]:
    """Say where a name is that several classes have."""
    places = defaultdict(list)
    for folder in ("bootstrap", "tests", "tools"):
        for file in sorted((TOP / folder).rglob("*.py")):
            for node in classes(ast.parse(file.read_text(encoding="utf-8"))):
                places[node.name].append(f"{file.relative_to(TOP)}:{node.lineno}")
    for name, at in places.items():
        if len(at) > 1:
            yield f"several classes are named {name}: {', '.join(at)}"


def unknown() -> Iterator[str]:
    """Say which names in backticks in docstrings are nowhere in the code."""
    named, there = dict[str, str](), {*dir(builtins)}
    for file in (TOP / "templates").rglob("*.[sj]*"):
        there |= {*re.findall(r"\w+", file.read_text(encoding="utf-8"))}
    for file in (TOP / "bootstrap").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text)) as said):
                    for name in re.findall(r"`([A-Za-z_.]+)`", text):
                        named |= {part: f"{file}:{node.lineno}" for part in name.split(".") if part}
                    said.value = ""
                case ast.Constant(value=str(text)):
                    there |= {*re.findall(r"\w+", text)}
                case ast.ImportFrom(module=str(module)):
                    there |= {*module.split(".")}
                case _:
                    there |= {each for each in vars(node).values() if isinstance(each, str)}
    for name, at in named.items():
        if name not in there:
            yield f"{at}: nothing is named {name}"


if __name__ == "__main__":
    sys.exit("\n".join([*twice(), *unknown()]) or 0)
