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

import ast
import base64
import re
import zlib
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from bootstrap.paths import shipped

_LINT = re.compile(r"\A# shellcheck .*\n")
ONBOX = Path(__file__).resolve().parents[1] / "onbox"
_OWN_IMPORT = re.compile(r"^ *from (\.+)([\w.]*) import (\(?[^#\n]*)", re.MULTILINE)


@cache
def shell_part(kind: str, name: str) -> str:
    """Return the text of `templates/<kind>/<name>.sh`, without its shellcheck directive."""
    text = (shipped("templates") / kind / f"{name}.sh").read_text(encoding="utf-8")
    return _LINT.sub("", text)


@cache
def onbox_files() -> dict[str, str]:
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
    # Compressed, comments and all: to take those away costs more time than it saves on the way; so
    # does a higher level, by 4 ms for 800 bytes.
    named = zip(modules, loaded, strict=True)
    loads = [f"load({module!r},{onbox_files()[name]!r})" for module, name in named]
    parents = [f"load({each!r},'__path__=[]')" for each in packages]
    whole = "\n".join([_LOAD, *parents, *loads, f"sys.modules[{modules[-1]!r}].main()"])
    packed = base64.b64encode(zlib.compress(whole.encode(), 5)).decode()
    return f"import zlib,base64;exec(zlib.decompress(base64.b64decode('{packed}')))"


def sent_module(name: str) -> str:
    """Return a module of `onbox/` that comes with a query and doesn't stay, for `python -c`: it
    imports from the program on the box, whose folder is the first argument."""
    module = name.removesuffix(".py").replace("/", ".")
    begin = "import sys;sys.path.insert(0,sys.argv.pop(1));import onbox;del sys.path[0]"
    text = (ONBOX.parent / name).read_text("utf-8")
    load = f"load({module!r},{text!r});sys.modules[{module!r}].main()"
    return f"{begin}\n{_LOAD}\n{load}"


_LOAD = """\
import sys,types
def load(name,text):
 module=types.ModuleType(name)
 module.__package__=name.rpartition('.')[0]
 sys.modules[name]=module
 exec(compile(text,name,'exec'),module.__dict__)"""


@cache
def known_hosts() -> tuple[str, ...]:
    """Return the git hosts' public keys, one known_hosts line each."""
    text = (shipped("templates") / "known_hosts").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


@cache
def functions(kind: str, name: str, wanted: tuple[str, ...]) -> str:
    """Return some functions of `templates/<kind>/<name>.sh`, with comments: of one line, or up to a
    `}` at the start of one. Raises KeyError if the file lacks one of them."""
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


Value = str | bool | int | Sequence[Any]

_LINE = 100  # characters of an array that stands in one line
_HARMLESS = re.compile(r"[A-Za-z0-9_./:@%+=, -]*")


def quote(value: Value) -> str:
    """Return `value` in a form that bash reads back unchanged.

    Text is single-quoted; a flag is `yes` or empty; a sequence is an array.

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
    items = [quote(item) for item in value]
    line = f"({' '.join(items)})"
    return line if len(line) <= _LINE else "(\n" + "".join(f"  {item}\n" for item in items) + ")"


def harmless(text: str) -> str:
    """Return `text` for a comment or a name: any special character becomes `?`."""
    return "".join(c if _HARMLESS.fullmatch(c) else "?" for c in text)


def assignments(values: dict[str, Value]) -> str:
    """Return lines of `name=value`."""
    return "".join(f"{name}={quote(value)}\n" for name, value in values.items())


FOLD = 1000  # characters in a line: a terminal takes at most 4,095 (termios(3), MAX_CANON)

_ROUNDS = 5  # zopfli's: one more gains 65 bytes, thirty 8 more, for twice the time
_BLOCKS = 15  # at most; of the whole program, 200 bytes and half a second more than four


def bare_shell(text: str) -> str:
    """Return shell code without comment lines and indentation; not for here-documents."""
    lines = (line.strip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))


def bare_python(text: str) -> str:
    """Return Python as `bare_tree` has it, with few spaces and lines."""
    parts = _STRING.split(ast.unparse(bare_tree(text)))
    code = (part.replace("\n\n", "\n") for part in parts[::2])
    parts[::2] = (_SPACES.sub(lambda found: found[1] or found[2], part) for part in code)
    lines: list[str] = []
    for line in _INDENT.sub(lambda found: " " * (len(found[0]) // 4), "".join(parts)).split("\n"):
        if lines and _indent_of(line) == _indent_of(lines[-1]) and line and lines[-1]:
            lines[-1] += f";{line.lstrip()}"
        else:
            lines.append(line)
    return _ONLY.sub(r"\1\2\3", "\n".join(lines))


def _indent_of(line: str) -> object:
    """Return that of a statement which others may follow in its line; of another, nothing equal."""
    return object() if _COMPOUND.match(line) else len(line) - len(line.lstrip())


def bare_tree(text: str) -> ast.Module:
    """Return Python without comments, docstrings, annotations except those of classes, and what is
    imported for these alone. Only for code that reads none of these."""
    tree: ast.Module = ast.fix_missing_locations(_WithoutTypes().visit(ast.parse(text)))
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if any(isinstance(node, ast.AnnAssign) for node in ast.walk(tree)):
        used.add("annotations")
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in _FOR_TYPES:
            node.names = [each for each in node.names if each.name in used]
    tree.body = [node for node in tree.body if getattr(node, "names", True)]
    return tree


_FOR_TYPES = ("__future__", "collections.abc", "typing")


class _WithoutTypes(ast.NodeTransformer):
    def visit(self, node: ast.AST) -> Any:  # noqa: ANN401 - as its base
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [each for each in node.body if not _is_text(each)] or [ast.Pass()]
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        return super().visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
        node.body = [each if each in fields else self.visit(each) for each in node.body]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        return ast.Assign([node.target], node.value) if node.value else ast.Pass()

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        return None if ast.unparse(node) == "TYPE_CHECKING = False" else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        is_for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if is_for_types else self.generic_visit(node)


_STRING = re.compile(r"""('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")""")
_SPACES = re.compile(r"([,:]) | ([-+*/%|<>]|[-+*/<>=!:]?=) ")
_INDENT = re.compile(r"^( {4})+", re.MULTILINE)
_BLOCKS_OF = r"(?:if|for|while|with|def|class|try|else|elif|except|finally)"
_COMPOUND = re.compile(rf" *{_BLOCKS_OF}\b| *@")
_ONLY = re.compile(
    rf"^( *)({_BLOCKS_OF}\b.*:)\n\1 (?!{_BLOCKS_OF}\b|[ @])(.*)(?=\n(?!\1 )|\Z)", re.M
)
"""A block of one line."""


def _is_text(node: ast.stmt) -> bool:
    """Whether it is a docstring, of whatever stands before it."""
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


@lru_cache(maxsize=8)
def squeezed(data: bytes) -> bytes:
    """Return `data` as gzip, reproducibly, as small as deflate can."""
    from zopfli.gzip import compress

    return bytes(compress(data, numiterations=_ROUNDS, blocksplittingmax=_BLOCKS))


def encoded(script: str, squeeze: Callable[[bytes], bytes] = squeezed) -> str:
    """Return the script, packed as gzip, in base64, in one line."""
    return base64.b64encode(squeeze(script.encode())).decode()


def folded(text: str) -> str:
    """Return `text` in lines that fit a terminal's input buffer."""
    return "".join(f"{text[at : at + FOLD]}\n" for at in range(0, len(text), FOLD))


_BUNZIP = (
    "if command -v bzip2 >/dev/null;then bzip2 -dc;else python3 -c "
    "'import bz2,sys;sys.stdout.buffer.write(bz2.decompress(sys.stdin.buffer.read()))';fi"
)


def paste(script: str, most: float = float("inf")) -> str:
    """Return a paste that runs the script completely or not at all, with the terminal as stdin.

    Without its last line the here-document is unterminated, and nothing runs; if the
    middle is damaged, gzip finds a wrong length or checksum, and nothing runs either. One of more
    than `most` characters is of bzip2, which is an eighth smaller, and not on every box.
    """
    text = _unpacked(encoded(script), "gzip -dc")
    if len(text) <= most:
        return text
    import bz2  # late: few pastes need it

    return _unpacked(encoded(script, bz2.compress), _BUNZIP)


def _unpacked(text: str, by: str) -> str:
    return f"f=$(mktemp);base64 -d<<'E'|{by}>$f&&bash $f;rm $f\n{folded(text)}E\n"


SHELL_SETTINGS = (
    *("BASHOPTS", "BASH_COMPAT", "BASH_ENV", "BASH_XTRACEFD", "CDPATH", "ENV", "EXECIGNORE"),
    *("FUNCNEST", "GLOBIGNORE", "GLOBSORT", "GREP_OPTIONS", "POSIXLY_CORRECT", "SHELLOPTS"),
    "TMOUT",
)
"""No script of this program sees them. `reset_shell` in `templates/lib/stage0.sh` has the same, for
scripts that a door starts."""
