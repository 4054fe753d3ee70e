"""Reduce the library for doors with a size limit: leave parts out, but rewrite none.

Lines that end in `# full` are removed first, then all shell functions that nothing calls any
more, then comments and indentation (`pack.py`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

from bootstrap.render.pack import bare_shell

_FULL = re.compile(r"^.* # full\n", re.MULTILINE)
_FUNCTION = re.compile(
    r"^(?P<name>[a-z_]+)\(\) (?:\{ .* \}|\{\n(?:.*\n)*?\}(?: 2>/dev/null)?)\n", re.MULTILINE
)
_ASSIGNED = re.compile(r"^(?:declare -A )?([A-Z_]+)=", re.MULTILINE)
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'[^']*'")
_CODE = re.compile(r"[$|;&]")
_WORD = re.compile(r"[A-Za-z_]+")


def without_full(text: str) -> str:
    """Remove the lines that only the full script has, in shell or Python."""
    return _FULL.sub("", text)


def reachable_shell(parts: Iterable[str], roots: Iterable[str]) -> list[str]:
    """Return the parts, bare, with only the functions that are reachable from `roots`."""
    # Find functions before removing indentation: they end with a `}` that is not indented.
    texts = [without_full(part) for part in parts]
    bodies = {
        found["name"]: bare_shell(found[0]) for part in texts for found in _FUNCTION.finditer(part)
    }
    kept, waiting = set[str](), [*roots]
    while waiting:
        name = waiting.pop()
        if name in bodies and name not in kept:
            kept.add(name)
            waiting += _WORD.findall(_QUOTED.sub(_code, bodies[name]))
    words = {word for name in kept for word in _WORD.findall(bodies[name])}
    return [bare_shell(_kept_of(part, kept, words)) for part in texts]


def _code(quoted: re.Match[str]) -> str:
    """Keep quoted text only if it may contain code: words of a sentence are not calls."""
    return quoted[0] if _CODE.search(quoted[0]) else ""


def _kept_of(part: str, functions: set[str], words: set[str]) -> str:
    """Return a part with the kept functions, and the tables that they read."""
    names = [found["name"] for found in _FUNCTION.finditer(part)]
    between = _FUNCTION.split(part)[::2]
    texts = [found[0] for found in _FUNCTION.finditer(part)]
    tables = [text if words.intersection(_ASSIGNED.findall(text)) else "" for text in between]
    own = [text if name in functions else "" for name, text in zip(names, texts, strict=True)]
    return "".join(a + b for a, b in zip(tables, [*own, ""], strict=True))


def program(text: str) -> str:
    """Return a shell program of the box, bare, without functions that it doesn't call."""
    text = without_full(text)
    words = _WORD.findall(bare_shell(text))
    kept = _FUNCTION.sub(lambda found: found[0] if words.count(found["name"]) > 1 else "", text)
    return bare_shell(kept).rstrip("\n")


def without_unused(sources: Mapping[str, str]) -> dict[str, str]:
    """Remove definitions from Python modules that none of the modules uses any more."""
    trees = {name: ast.parse(without_full(text)) for name, text in sources.items()}
    while True:
        named = {
            name for tree in trees.values() for node in ast.walk(tree) for name in _named(node)
        }
        unused = [
            (tree, node)
            for tree in trees.values()
            for node in tree.body
            if (defined := _defined(node)) and not defined & named
        ]
        if not unused:
            return {name: ast.unparse(tree) for name, tree in trees.items()}
        for tree, node in unused:
            tree.body.remove(node)


def _defined(node: ast.stmt) -> set[str]:
    """Return the names that a module's statement defines; empty for other statements."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {each.id for each in targets if isinstance(each, ast.Name)}


def _named(node: ast.AST) -> list[str]:
    """Return the names that a node of a syntax tree reads."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    # Rows of a table are looked up in their module by name, a string.
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
