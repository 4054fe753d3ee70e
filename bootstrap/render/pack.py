"""Packing: shorten a script without changing what it does, and make one paste of it.

Comments and indentation are removed; names are kept, since renaming could
introduce errors (docs/adr/0018-three-lengths.md). gzip and base64 exist on
every box.
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
"""Characters in a line: a terminal takes at most 4,095 (termios(3), MAX_CANON)."""

_ROUNDS = 5  # zopfli's: one more gains 65 bytes, thirty 8 more, for twice the time
_BLOCKS = 4  # at most; fifteen gain 50 bytes for a long script, for twice the time
_WORDS = re.compile(r"""\w[\w"']""")
"""Pairs that need a space between them: without it a word could become a string's prefix."""
_WORTH_IT = 96 * 1024  # bytes; above, all rounds take seconds, and one gains nearly as much


def bare_shell(text: str) -> str:
    """Return shell code without comment lines, empty lines and indentation.

    Only for code without here-documents and multi-line strings.
    """
    lines = (line.strip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))


def bare_python(text: str) -> str:
    """Minify Python: no comments, docstrings, annotations or their imports; indented by one space.

    The program does the same. One that uses `__doc__` keeps the first line of its docstring.
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
            # The only annotations left are those of class fields.
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
    """Remove the spaces between words and operators in the output of `ast.unparse`."""
    lines, cuts = [*text.splitlines(keepends=True), ""], []
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for before, token in pairwise(tokens):
        row, column = before.end
        if row != token.start[0] or lines[row - 1][column : token.start[1]] != " ":
            continue
        kinds = {tokenize.tok_name[each.type] for each in (before, token)}
        beside = before.string[-1:] + token.string[:1]
        # Since 3.12 an f-string is several tokens, and not all have a correct end position.
        if not (_WORDS.fullmatch(beside) or "FSTRING_MIDDLE" in kinds):
            cuts.append((row - 1, column))
    for row, column in reversed(cuts):
        lines[row] = lines[row][:column] + lines[row][column + 1 :]
    return "".join(lines)


def _without_annotations(tree: ast.Module) -> None:
    """Remove annotations of variables, but not of class fields, which dataclasses need."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and not isinstance(node, ast.ClassDef):
            for at, each in enumerate(body):
                if isinstance(each, ast.AnnAssign) and each.value is not None:
                    body[at] = ast.Assign([each.target], each.value, lineno=each.lineno)


@lru_cache(maxsize=8)
def squeezed(data: bytes) -> bytes:
    """Return `data` as gzip, reproducibly; short data is compressed as well as deflate can."""
    from zopfli.gzip import compress

    rounds = _ROUNDS if len(data) <= _WORTH_IT else 1
    return bytes(compress(data, numiterations=rounds, blocksplittingmax=_BLOCKS))


def encoded(script: str) -> str:
    """Return the script as gzip in base64, in one line."""
    return base64.b64encode(squeezed(script.encode())).decode()


def folded(text: str) -> str:
    """Return `text` in lines that fit a terminal's input buffer."""
    return "".join(f"{text[at : at + FOLD]}\n" for at in range(0, len(text), FOLD))


def paste(script: str) -> str:
    """Return a paste that runs the script completely or not at all, with the terminal as stdin.

    Without its last line the here-document is unterminated, and nothing runs; if the
    middle is damaged, gzip finds a wrong length or checksum, and nothing runs either.
    """
    packed = squeezed(script.encode())
    ways = (("base64 -d", base64.b64encode(packed).decode()), (_DECODE, _in_85(packed)))
    return min((_pasted(*way) for way in ways), key=len)


def _pasted(decoder: str, text: str) -> str:
    return f"f=$(mktemp);{decoder}<<'E'|gzip -dc>$f&&bash $f;rm $f\n{folded(text)}E\n"


_DIGITS = "".join(chr(code) for code in range(33, 127) if chr(code) not in "!\"$';\\^`~")
"""85 characters without special meaning to a terminal, ssh or history: 5 encode 4 bytes."""

_FROM_RFC_1924 = str.maketrans(
    string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~",
    _DIGITS,
)
"""From the digits of Python's base85."""

_DECODE = (
    # Quoted twice: for the shell it is pasted into, and for the bash that it starts.
    f"d='{_DIGITS}' bash -c 'LC_ALL=C;while read -r l;do o=;for((i=0;i<${{#l}};i+=5));do n=0;"
    'for j in 0 1 2 3 4;do p=${d%%"${l:i+j:1}"*};n=$((n*85+${#p}));done;printf -v h %08x $n;'
    """o+="\\x${h:0:2}\\x${h:2:2}\\x${h:4:2}\\x${h:6:2}";done;printf "$o";done'"""
)


def _in_85(packed: bytes) -> str:
    """Encode in base85, a sixteenth shorter than base64; gzip ignores the zeros at the end."""
    packed += bytes(-len(packed) % 4)
    return base64.b85encode(packed).decode().translate(_FROM_RFC_1924)
