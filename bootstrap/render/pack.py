"""Packing: a script made as short as its meaning allows, and one paste of it.

Comments and indentation go; names stay, since a program that renames is a
program that can be wrong (docs/adr/0018-three-lengths.md). gzip and base64 are
what every box has.
"""

from __future__ import annotations

import ast
import base64
import io
import re
import string
import tokenize
from functools import lru_cache
from itertools import pairwise

FOLD = 1000
"""Characters a line: a terminal takes 4,095 at once (termios(3), MAX_CANON)."""

_ROUNDS = 5  # zopfli's: one more gains 65 bytes, thirty 8 more, for twice the time
_BLOCKS = 4  # at most; fifteen gain 50 bytes where the script is long, for twice the time
_WORDS = re.compile(r"""\w[\w"']""")
"""What a space must stay between; after a word a quote could be taken for part of it."""
_WORTH_IT = 96 * 1024  # bytes; above, so many rounds take seconds, and one gains nearly as much


def bare_shell(text: str) -> str:
    """Shell without comment lines, empty lines and indentation.

    Only for parts without here-documents and without text over several lines.
    """
    lines = (line.strip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))


def bare_python(text: str) -> str:
    """Python without comments, docstrings, spaces and what only annotations need, indented by one.

    It means the same. A program that shows its docstring keeps the first line of it.
    """
    tree = ast.parse(text)
    shown = any(isinstance(node, ast.Name) and node.id == "__doc__" for node in ast.walk(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in (*node.args.args, *node.args.kwonlyargs, node.args.vararg):
                if argument is not None:
                    argument.annotation = None
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            said = ast.get_docstring(node)
            if said is not None and shown and isinstance(node, ast.Module):
                node.body[0] = ast.Expr(ast.Constant(said.splitlines()[0]))
            elif said is not None:
                node.body = node.body[1:] or [ast.Pass()]
    _without_annotations(tree)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]:
        names = [each for each in node.names if (each.asname or each.name).split(".")[0] in used]
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            # Fields of a class are the only annotations left.
            if not any(isinstance(each, ast.AnnAssign) for each in ast.walk(tree)):
                tree.body.remove(node)
            continue
        if names:
            node.names = names
        else:
            tree.body.remove(node)
    return re.sub(
        r"^( {4})+",
        lambda found: " " * (len(found[0]) // 4),
        without_spaces(ast.unparse(tree)),
        flags=re.MULTILINE,
    )


def without_spaces(text: str) -> str:
    """Python without the spaces between words and signs, as `ast.unparse` sets them."""
    lines, cuts = [*text.splitlines(keepends=True), ""], []
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for before, token in pairwise(tokens):
        row, column = before.end
        if row != token.start[0] or lines[row - 1][column : token.start[1]] != " ":
            continue
        kinds = {tokenize.tok_name[each.type] for each in (before, token)}
        beside = before.string[-1:] + token.string[:1]
        # From 3.12 on an f-string is many tokens, and not each says where it ends.
        if not (_WORDS.fullmatch(beside) or "FSTRING_MIDDLE" in kinds):
            cuts.append((row - 1, column))
    for row, column in reversed(cuts):
        lines[row] = lines[row][:column] + lines[row][column + 1 :]
    return "".join(lines)


def _without_annotations(tree: ast.Module) -> None:
    """Variables lose theirs; the fields of a class are made of them."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and not isinstance(node, ast.ClassDef):
            for at, each in enumerate(body):
                if isinstance(each, ast.AnnAssign) and each.value is not None:
                    body[at] = ast.Assign([each.target], each.value, lineno=each.lineno)


@lru_cache(maxsize=8)
def squeezed(data: bytes) -> bytes:
    """`data` as gzip; the same bytes each time. What is short is made as short as deflate can."""
    from zopfli.gzip import compress

    rounds = _ROUNDS if len(data) <= _WORTH_IT else 1
    return bytes(compress(data, numiterations=rounds, blocksplittingmax=_BLOCKS))


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
    packed = squeezed(script.encode())
    ways = (("base64 -d", base64.b64encode(packed).decode()), (_DECODE, _in_85(packed)))
    return min((_pasted(*way) for way in ways), key=len)


def _pasted(decoder: str, text: str) -> str:
    return f"f=$(mktemp);{decoder}<<'E'|gzip -dc>$f&&bash $f;rm $f\n{folded(text)}E\n"


_DIGITS = "".join(chr(code) for code in range(33, 127) if chr(code) not in "!\"$';\\^`~")
"""85 characters that mean nothing to a terminal, to ssh or to history: 4 bytes in 5 of them."""

_FROM_RFC_1924 = str.maketrans(
    string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~",
    _DIGITS,
)
"""From the characters that Python takes for the same."""

_DECODE = (
    # Quoted once for the shell that is pasted into, and once for the bash that reads it.
    f"d='{_DIGITS}' bash -c 'LC_ALL=C;while read -r l;do o=;for((i=0;i<${{#l}};i+=5));do n=0;"
    'for j in 0 1 2 3 4;do p=${d%%"${l:i+j:1}"*};n=$((n*85+${#p}));done;printf -v h %08x $n;'
    """o+="\\x${h:0:2}\\x${h:2:2}\\x${h:4:2}\\x${h:6:2}";done;printf "$o";done'"""
)


def _in_85(packed: bytes) -> str:
    """A sixteenth shorter than base64; gzip passes over the zeros at the end."""
    packed += bytes(-len(packed) % 4)
    return base64.b85encode(packed).decode().translate(_FROM_RFC_1924)
