"""Packing: a script made as short as its meaning allows, and one paste of it.

Comments and indentation go; names stay, since a program that renames is a
program that can be wrong (docs/adr/0018-three-lengths.md). gzip and base64 are
what every box has.
"""

from __future__ import annotations

import ast
import base64
import gzip
import re

FOLD = 1000
"""Characters a line: a terminal takes 4,095 at once (termios(3), MAX_CANON)."""

_ROUNDS = 30  # zopfli's; 15 is its default, and more than 50 gain nothing
_WORTH_IT = 48 * 1024  # bytes; above, it takes seconds, and doors are wide


def bare_shell(text: str) -> str:
    """Shell without comment lines, empty lines and indentation.

    Only for parts without here-documents and without text over several lines.
    """
    lines = (line.strip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))


def bare_python(text: str) -> str:
    """Python without comments and docstrings, indented by one; it means the same."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in node.args.args:
                argument.annotation = None
        if isinstance(node, ast.Module | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return re.sub(
        r"^( {4})+", lambda found: " " * (len(found[0]) // 4), ast.unparse(tree), flags=re.MULTILINE
    )


def squeezed(data: bytes) -> bytes:
    """`data` as gzip; the same bytes each time. What is short is made as short as deflate can."""
    if len(data) > _WORTH_IT:
        return gzip.compress(data, 9, mtime=0)
    from zopfli.gzip import compress

    return bytes(compress(data, numiterations=_ROUNDS))


def encoded(script: str) -> str:
    """The script as gzip in base64, one line."""
    return base64.b64encode(squeezed(script.encode())).decode()


def folded(text: str) -> str:
    """`text` in lines that a terminal takes."""
    return "".join(f"{text[at : at + FOLD]}\n" for at in range(0, len(text), FOLD))


def paste(script: str) -> str:
    """One paste that runs the script: whole or not at all, with the terminal as its input.

    Without its last line the here-document has no end, and nothing runs; with a
    damaged middle gzip finds a wrong length or checksum, and nothing runs either.
    """
    return f"f=$(mktemp);base64 -d<<'E'|gzip -dc>$f&&bash $f;rm $f\n{folded(encoded(script))}E\n"
