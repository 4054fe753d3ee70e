"""What is left of the library where a door has a limit: parts are left out, and none is rewritten.

Lines that end in `# full` go, then every function of the shell that nothing calls any more.
Comments and indentation go last (`pack.py`).
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
    """Shell or Python without the lines that the full script alone has."""
    return _FULL.sub("", text)


def reachable_shell(parts: Iterable[str], roots: Iterable[str]) -> list[str]:
    """The parts, bare, with those functions alone that `roots` lead to."""
    # A function ends with a `}` that is not indented: it is found while it has its indentation.
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
    """Quoted text where it may be code; sentences name no function."""
    return quoted[0] if _CODE.search(quoted[0]) else ""


def _kept_of(part: str, functions: set[str], words: set[str]) -> str:
    """One part: its functions that are kept, and the tables that those read."""
    names = [found["name"] for found in _FUNCTION.finditer(part)]
    between = _FUNCTION.split(part)[::2]
    texts = [found[0] for found in _FUNCTION.finditer(part)]
    tables = [text if words.intersection(_ASSIGNED.findall(text)) else "" for text in between]
    own = [text if name in functions else "" for name, text in zip(names, texts, strict=True)]
    return "".join(a + b for a, b in zip(tables, [*own, ""], strict=True))


def program(text: str) -> str:
    """A shell program of the box, bare, without functions that it does not call."""
    text = without_full(text)
    words = _WORD.findall(bare_shell(text))
    kept = _FUNCTION.sub(lambda found: found[0] if words.count(found["name"]) > 1 else "", text)
    return bare_shell(kept).rstrip("\n")


def without_unused(sources: Mapping[str, str]) -> dict[str, str]:
    """Modules of Python without what none of them names any more."""
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
    """What a statement of a module defines; empty for any other."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else []
    return {each.id for each in targets if isinstance(each, ast.Name)}


def _named(node: ast.AST) -> list[str]:
    """The names that a node of a syntax tree reads."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    # A table's rows are found in their module by its name, as text.
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
