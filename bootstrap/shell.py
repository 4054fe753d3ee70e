"""Shell code for a box: its shipped parts, values quoted for it, made short.

The parts are plain shell files that shellcheck can read; nothing is substituted
in them. The first line, a shellcheck directive, is left out.

Values are quoted so that they arrive byte for byte and are never executed. Everything is quoted by
default: a template must ask explicitly to write a value unquoted, and then it may consist of
harmless characters only.

Packing shortens a script without changing what it does, and makes one paste of it. Comments and
indentation are removed; names are kept, since renaming could introduce errors (docs/adr/0018). gzip
and base64 exist on every box.
"""

from __future__ import annotations

import ast
import base64
import io
import re
import tokenize
import zlib
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path

from bootstrap.paths import shipped

_LINT = re.compile(r"\A# shellcheck .*\n")
_LIBRARY_HERE = re.compile(r"^ *# library: ([a-z0-9_/ ]+)\n", re.MULTILINE)
"""Names the parts of the library, or of queries, that a query needs."""
ONBOX = Path(__file__).resolve().parent / "onbox"
_OWN_IMPORT = re.compile(r"^ *from (\.+)([\w.]*) import (\(?[^#\n]*)", re.MULTILINE)


@cache
def shell_part(kind: str, name: str) -> str:
    """Return the text of `templates/<kind>/<name>.sh`, without its shellcheck directive."""
    text = (shipped("templates") / kind / f"{name}.sh").read_text(encoding="utf-8")
    return _LINT.sub("", text)


@cache
def onbox_files() -> dict[str, str]:
    """Return the text of each file of `onbox/`, by its path."""
    files = sorted(ONBOX.rglob("*.py"))
    return {file.relative_to(ONBOX.parent).as_posix(): file.read_text("utf-8") for file in files}


def own_imports(name: str, text: str) -> list[str]:
    """Return the files of `onbox/` that the text of one of them imports, in its order."""
    found = []
    for dots, module, names in _OWN_IMPORT.findall(text):
        folder = name.split("/")[: -len(dots)]
        whole = "/".join([*folder, *filter(None, module.split("."))])
        beside = [f"{whole}/{each.split(' as ')[0].strip()}.py" for each in names.split(",")]
        found += [each for each in (f"{whole}.py", *beside) if each in onbox_files()]
    return found


@cache
def sent_program(name: str) -> str:
    """Return a program of `onbox/`, with what it imports, as one argument for `python -c`."""
    loaded: list[str] = []

    def load(name: str) -> None:
        for each in own_imports(name, onbox_files()[name]):
            if each not in loaded:
                load(each)
        loaded.append(name)

    load(name)
    modules = [name.removesuffix(".py").replace("/", ".") for name in loaded]
    packages = sorted({module.rpartition(".")[0] for module in modules} | {"onbox"})
    # Compressed, comments and all: to take those away costs more time than it saves on the way.
    named = zip(modules, loaded, strict=True)
    loads = [f"load({module!r},{onbox_files()[name]!r})" for module, name in named]
    parents = [f"load({each!r},'__path__=[]')" for each in packages]
    whole = "\n".join([_LOAD, *parents, *loads, f"sys.modules[{modules[-1]!r}].main()"])
    packed = base64.b64encode(zlib.compress(whole.encode(), 9)).decode()
    return f"import zlib,base64;exec(zlib.decompress(base64.b64decode('{packed}')))"


_LOAD = """\
import sys,types
def load(name,text):
 module=types.ModuleType(name)
 module.__package__=name.rpartition('.')[0]
 sys.modules[name]=module
 exec(compile(text,name,'exec'),module.__dict__)"""


def named_library(text: str) -> str:
    """Return the parts of the library, and of queries, that lines `# library:` of a text name."""
    return "".join(map(_parts_named, _LIBRARY_HERE.finditer(text)))


def _parts_named(named: re.Match[str]) -> str:
    parts = (f"lib/{part}".split("/")[-2:] for part in named[1].split())
    return "".join(shell_part(kind, part) for kind, part in parts)


@cache
def known_hosts() -> tuple[str, ...]:
    """Return the git hosts' public keys, one known_hosts line each."""
    text = (shipped("templates") / "known_hosts").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


@cache
def functions(kind: str, name: str, wanted: tuple[str, ...]) -> str:
    """Return some functions of `templates/<kind>/<name>.sh`, with their comments.

    A function is a single line, or ends with a `}` at the start of a line. Raises
    KeyError if the file lacks one of them.
    """
    found = {match["name"]: match[0] for match in _FUNCTION.finditer(shell_part(kind, name))}
    return "".join(found[each] + "\n" for each in wanted)


def called(library: str, by: str) -> str:
    """Return a library without the functions that neither `by` nor what it calls names."""
    bodies = {match["name"]: match[0] for match in _FUNCTION.finditer(library)}
    kept, texts = set[str](), [by, _FUNCTION.sub("", library)]
    while texts:
        new = bodies.keys() & set(re.findall(r"\w+", bare_shell(texts.pop()))) - kept
        kept |= new
        texts += [bodies[name] for name in new]
    return _FUNCTION.sub(lambda match: match[0] * (match["name"] in kept), library)


_FUNCTION = re.compile(
    r"(?:^#.*\n)*^(?P<name>[a-z_]+)\(\) (?:\{ .* \}|\{\n(?:.*\n)*?\})$", re.MULTILINE
)


Value = str | bool | int | Sequence[str] | Mapping[str, str]

_LINE = 100
"""Characters of an array that stands in one line."""
_HARMLESS = re.compile(r"[A-Za-z0-9_./:@%+=, -]*")


def quote(value: Value) -> str:
    """Return `value` in a form that bash reads back unchanged.

    Text is single-quoted; a flag is `yes` or empty; a sequence is an array, and a
    mapping an associative one, to be declared (`declare -A`).

    Raises ValueError on a NUL, which no shell can hold.
    """
    if isinstance(value, bool):
        return "'yes'" if value else "''"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        if "\0" in value:
            raise ValueError("a NUL byte cannot be written into a shell script")
        return "'" + value.replace("'", "'\\''") + "'"
    if not value:
        return "()"
    if isinstance(value, Mapping):
        rows = (f"  [{quote(key)}]={quote(item)}\n" for key, item in value.items())
        return "(\n" + "".join(rows) + ")"
    items = [quote(item) for item in value]
    line = f"({' '.join(items)})"
    return line if len(line) <= _LINE else "(\n" + "".join(f"  {item}\n" for item in items) + ")"


def harmless(text: str) -> str:
    """Return `text` for a comment or a name: any special character becomes `?`."""
    return "".join(c if _HARMLESS.fullmatch(c) else "?" for c in text)


def assignments(values: dict[str, Value]) -> str:
    """Return lines of `name=value`; a mapping is one everywhere, wherever it is read."""
    return "".join(
        f"{'declare -gA ' * isinstance(value, Mapping)}{name}={quote(value)}\n"
        for name, value in values.items()
    )


FOLD = 1000
"""Characters in a line: a terminal takes at most 4,095 (termios(3), MAX_CANON)."""

_ROUNDS = 5  # zopfli's: one more gains 65 bytes, thirty 8 more, for twice the time
_BLOCKS = 4  # at most; fifteen gain 50 bytes for a long script, for twice the time
_WORDS = r"""\w[\w"']"""
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
            said = ast.get_docstring(node) if shown and isinstance(node, ast.Module) else None
            kept = [each for each in node.body if not _is_text(each)]
            node.body = kept or [ast.Pass()]
            if said:
                node.body.insert(0, ast.Expr(ast.Constant(said.splitlines()[0])))
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


def _is_text(node: ast.stmt) -> bool:
    """Whether it is a docstring, of whatever stands before it."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


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
        if not (re.fullmatch(_WORDS, beside) or "FSTRING_MIDDLE" in kinds):
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
    unpack = "f=$(mktemp);base64 -d<<'E'|gzip -dc>$f&&bash $f;rm $f"
    return f"{unpack}\n{folded(encoded(script))}E\n"


SHELL_SETTINGS = (
    *("BASHOPTS", "BASH_COMPAT", "BASH_ENV", "BASH_XTRACEFD", "CDPATH", "ENV", "EXECIGNORE"),
    *("FUNCNEST", "GLOBIGNORE", "GLOBSORT", "GREP_OPTIONS", "POSIXLY_CORRECT", "SHELLOPTS"),
    "TMOUT",
)
"""No script of this program sees them. `reset_shell` in `templates/lib/base.sh` has the same, for
scripts that a door starts."""
