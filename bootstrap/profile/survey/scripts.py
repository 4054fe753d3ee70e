"""What a repository's scripts are: which may be the training, what it imports, where it writes. All
is read as text."""

import ast
import json
import posixpath
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from bootstrap.profile.survey import files
from bootstrap.profile.survey.files import PACKAGES

_LONGEST = 200  # characters of a module's name that is looked for
_PROGRAM = re.compile(r"^if __name__ == [\"']__main__[\"']", re.MULTILINE)
_DEFINES = re.compile(r"^(?:async )?(?:def|class) ", re.MULTILINE)
# A line at the top level that does more than to define or import something.
_DOES = re.compile(
    r"^(?!(?:async )?(?:def|class|import|from|try|except)\b|else:|if TYPE_CHECKING"
    r"|\w+\s*(?::[^=\n]+)?=)\w",
    re.MULTILINE,
)
_IMPORT = re.compile(r"^[^\S\n]*(?:import|from)\s+([A-Za-z_][\w.]*)", re.MULTILINE)
_FRAMEWORK = re.compile(
    r"^[^\S\n]*(?:import|from)\s+(?:torch|jax|flax|tensorflow|keras|lightning|pytorch_lightning|transformers"
    r"|accelerate|diffusers|trl|peft)\b",
    re.MULTILINE,
)
_LEARNS = re.compile(r"\.backward\(|\.fit\(|Trainer\(|optimizer|value_and_grad|\.train\(")
_NO_TRAINING = re.compile(
    r"eval|test|sampl|generat|predict|infer|demo|download|prepar|preproc|export|convert|bench|setup"
    r"|config|util|hubconf|gradio|serve|app\b|plot|model|data|detect|^val\b",
    re.IGNORECASE,
)
_ASSERTED = re.compile(r"^[ \t]*assert (\w+)\.__version__ == [\"']([\w.]+)[\"']", re.MULTILINE)
# What a package imports only once it is called, and does not require.
_IMPORTED_LATE = (
    ("transformers", r"\bTrainer\(", "accelerate"),
    ("evaluate", r"\bload\(\s*[\"'](?:glue|accuracy|f1|precision|recall)\b", "scikit-learn"),
)
_ON_PATH = re.compile(r"sys\.path\.(?:append|insert|extend)\(([^\n]*)")
_DEEPEST = 3
_MOST_SCRIPTS = 400
_FOLDER = (
    r"(?:out|output|work|save|log|ckpt|checkpoint|results?)[_-]?(?:dir|path|folder|root)"
    r"|logs|results|output_path"
)
# An option's default, perhaps some lines below its name.
_DEFAULT = r",(?s:(?!add_argument|option\(|default\s*=).){0,300}default\s*=\s*"
_WRITES = (
    rf"(?i)\b(?:{_FOLDER})(?::\s*\w+)?\s*=\s*(?:ROOT\s*/\s*)?[\"']([^\"'\n]+)[\"']",
    rf"--out(?:put)?[\"']{_DEFAULT}[\"']([^\"'\n]+/|out\w*)[\"']",
    rf"--(?:{_FOLDER})[\"']{_DEFAULT}(?:ROOT\s*/\s*)?[\"']([^\"'\n]+)[\"']",
    rf"--project[\"']{_DEFAULT}(?:ROOT\s*/\s*)?[\"']([^\"'\n]+/[^\"'\n]+)[\"']",
    r"os\.(?:mkdir|makedirs)\([\"']([^\"'\n]+)[\"']",
    r"\bSummaryWriter\((?:log_?dir\s*=\s*)?f?[\"']([\w./-]+)",
    r"\bsave\([^\n\"'(]{0,80}(?:\([^\n\"'(]{0,80})?[\"']([\w./-]{1,80})/",
)
_TOLD = re.compile(rf"(?:--(?:{_FOLDER})|--out(?:put)?|\s-o)[= ]'?([\w.,+@/-]+)")
CONFIGURED = re.compile(
    rf"^[ \t]*[\"']?(?:{_FOLDER}|save|tensorboard[_-]dir)[\"']?\s*:\s*[\"']?"
    r"(?!(?:true|false|https?)\b)([\w.+@/-]+)",
    re.MULTILINE | re.IGNORECASE,
)
_FOLDER_VARIABLE = re.compile(
    r"(?:environ(?:\.get\(|\[)|getenv\()[\"']"
    r"(\w*(?:BASE|LOG|OUT|OUTPUT|SAVE|CKPT|CHECKPOINT|RESULT|RUN)S?_?(?:DIR|PATH|FOLDER|ROOT))[\"']"
)
_MOST_READ = 12  # modules of the training, for an option that says where it writes
LIKELY = 40  # the least score of a script that is taken for the training


class TrainingCandidate(NamedTuple):
    path: str
    score: int


class Imported(NamedTuple):
    """What a script imports, directly and through modules of the repository."""

    packages: dict[str, str]  # packages, each with the file that imports it
    unknown: dict[str, str]
    """Modules whose package is not known, each with the file that imports it."""
    folders: tuple[str, ...]
    """Paths of folders in the repository, other than the script's own, that modules come from."""
    files: tuple[str, ...] = ()  # the repository's own modules among them
    absent: tuple[str, ...] = ()  # submodules that it looks in, and that are not checked out
    asserted: Mapping[str, str] = MappingProxyType({})
    """Packages that the script wants in one version."""


def candidates(
    root: Path, said_to_run: Iterable[str], called: Mapping[str, str]
) -> list[TrainingCandidate]:
    """Return possible trainings, likeliest first; `said_to_run` are scripts that a page names.
    `called`: the command of the repository by which a script is run."""
    named = list(dict.fromkeys(said_to_run))
    found = []
    # `python setup.py install` is what many pages say to run.
    known = (path for path in files.below(root, _DEEPEST) if path.suffix == ".py")
    scripts = [path for path in known if path != root / "setup.py"]
    for path in scripts[:_MOST_SCRIPTS]:
        name, depth = path.name, len(path.relative_to(root).parts) - 1
        source = files.text_of_file(path, files.LARGEST_SCRIPT)
        relative = str(path.relative_to(root))
        if relative not in named and _DEFINES.search(source) and not _DOES.search(source):
            continue
        trains = learns(source)
        runs = bool(_PROGRAM.search(source)) or relative in named
        command = called.get(relative, "")
        by_name = max(map(score_of_name, filter(None, (name, command))))
        if by_name <= 0 and not (trains and runs and by_name == 0) and not (runs and not depth):
            continue
        is_of_package = not by_name > 0 and (path.parent / "__init__.py").exists()
        if (depth > 1 and not trains and not command) or (is_of_package and relative not in named):
            continue
        score = by_name + 25 * trains + 10 * runs + (15 if relative in named else 0)
        score += 15 if trains and runs else 0
        found.append(TrainingCandidate(relative, score + (10 if not depth else -5 * depth)))
    if len(found) == 1:
        found = [found[0]._replace(score=found[0].score + 15)]
    found.sort(key=lambda each: (-each.score, [*named, each.path].index(each.path), len(each.path)))
    return found


def source_of(path: Path) -> str:
    if path.suffix == ".ipynb":
        return "\n".join(_cells(files.text_of_file(path, files.LARGEST)))
    return files.text_of_file(path, files.LARGEST_SCRIPT)


def learns(source: str) -> bool:
    """Whether it imports a framework and does what only a training does."""
    return bool(_FRAMEWORK.search(source) and _LEARNS.search(source))


def is_program(path: Path) -> bool:
    return bool(_PROGRAM.search(files.text_of_file(path, files.LARGEST_SCRIPT)))


def score_of_name(name: str) -> int:
    """Return how likely a script or command of this name is the training."""
    stem = name.removesuffix(".py").lower()
    if stem == "train":
        return 50
    if stem.endswith("trainer"):
        return -40
    if re.search(r"train|fine_?tun", stem):
        return 20 if _NO_TRAINING.search(stem) else 30
    if _NO_TRAINING.search(stem) or stem.startswith("_"):
        return -40
    return 10 if stem in ("main", "run") else 0


def imported(root: Path, script: str) -> Imported:
    """Return what the script needs to start: imports whose failure no `except` catches."""
    packages, unknown, folders = dict[str, str](), dict[str, str](), list[str]()
    waiting, seen = [root / script], {root / script}
    home = (root / script).parent
    put = [*_put_on_path(root, script)]
    absent = [each for each in put if not files.inside(root / each)]
    while waiting and len(seen) < _MOST_SCRIPTS:
        path = waiting.pop(0)
        where = str(path.relative_to(root))
        for module in _modules(path, own=path == root / script):
            name = module.lstrip(".")
            above = len(module) - len(name)
            homes = [path.parent, home, *(root / each for each in put), root, root / "src"]
            base, files_of = _at_home(name, [[path, *path.parents][above]] if above else homes)
            base = home if above else base
            if above and not files_of:
                continue
            if files_of:
                if base not in homes[: 2 + len(put)]:
                    folders.append("." if base == root else str(base.relative_to(root)))
                waiting += [each for each in files_of if each not in seen]
                seen.update(files_of)
                continue
            top = module.partition(".")[0]
            if module in PACKAGES:
                packages.setdefault(PACKAGES[module], where)
            if top in PACKAGES:
                packages.setdefault(PACKAGES[top], where)
            elif top not in sys.stdlib_module_names and not absent:
                unknown.setdefault(top, where)
    for package, call, needs in _IMPORTED_LATE:
        if package in packages and re.search(call, source_of(root / script)):
            packages.setdefault(needs, f"{package}, as {script} uses it,")
    own = sorted(str(path.relative_to(root)) for path in seen if path.suffix == ".py")
    asserted = {PACKAGES.get(a, a): b for a, b in _ASSERTED.findall(source_of(root / script))}
    return Imported(
        packages, unknown, tuple(dict.fromkeys(folders)), tuple(own), tuple(absent), asserted
    )


def _put_on_path(root: Path, script: str) -> Iterator[str]:
    """Yield the folders of the repository that a script puts on its path, and its submodules'."""
    modules = files.text_of_file(root / ".gitmodules")
    for line in _ON_PATH.findall(source_of(root / script)):
        named = posixpath.join(*re.findall(r"[\"']([\w./-]+)[\"']", line) or [""])
        for folder in dict.fromkeys((str(PurePosixPath(script).parent), "")):
            path = posixpath.normpath(posixpath.join(folder, named))
            is_module = re.search(rf"^[ \t]*path = {re.escape(path)}$", modules, re.MULTILINE)
            if path != "." and (is_module or files.has(root, path, folder=True)):
                yield path
                break


def _at_home(module: str, homes: Iterable[Path]) -> tuple[Path, list[Path]]:
    """Return the folder and files of a module of the repository; no files for other modules."""
    parts = module.split(".")
    for home in homes:
        found = []
        for count in range(len(parts), 0, -1):
            path = home.joinpath(*parts[:count])
            found += [
                each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()
            ]
        # A folder of outputs may have the name of a package.
        folder = home / parts[0]
        if found or any(folder.glob("*.py")) or (folder.is_dir() and parts[0] not in PACKAGES):
            return home, found or [folder]
    return Path(), []


def _modules(path: Path, *, own: bool) -> list[str]:
    """Return the modules that a file imports when loaded; with `own`, in its functions too."""
    source = source_of(path)
    tree = parsed(source)
    found = [*_imports(tree, inner=own)] if tree else _IMPORT.findall(source)
    return [one for one in dict.fromkeys(found) if len(one) < _LONGEST]


def parsed(source: str) -> ast.Module | None:
    """Return the syntax of a script; None if it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


_READ = ("r", "rb", "rt")
_READERS = ("load", "loadtxt", "read_csv", "read_json", "read_parquet", "read_pickle", "read_table")


def opened(source: str) -> list[str]:
    """Return the files that a script reads by a name in its text, and speaks of nowhere else."""
    nodes = [*ast.walk(parsed(source) or ast.Module([], []))]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant)]
    found = []
    for call in nodes:
        match call:
            case ast.Call(func=ast.Name("open"), args=[ast.Constant(str(name)), *more]):
                reads = all(isinstance(mode, ast.Constant) and mode.value in _READ for mode in more)
            case ast.Call(func=ast.Attribute(attr=reader), args=[ast.Constant(str(name)), *_]):
                reads = reader in _READERS
            case _:
                continue
        if reads and texts.count(name) == 1 and re.fullmatch(r"(?!/|~|\.\./)[\w./-]+\.\w+", name):
            found.append(name)
    return found


def required(source: str) -> list[tuple[str, ...]]:
    """Return the arguments that a script can't do without, each with its names. None where it has
    commands of its own: which of them need one can't be told from its text."""
    tree, found = parsed(source), list[tuple[str, ...]]()
    for node in ast.walk(tree) if tree and "add_subparsers" not in source else ():
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            names = tuple(
                each.value
                for each in node.args
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )
            given = {each.arg: each.value for each in node.keywords}
            is_option, must = bool(names) and names[0].startswith("-"), given.get("required")
            is_must = isinstance(must, ast.Constant) and must.value is True
            if is_must if is_option else not {"nargs", "default", "action"} & {*given}:
                found.append(names)
    return found


def needs_launcher(source: str) -> bool:
    """Whether it begins as one of several processes, whoever starts it."""
    if not re.search(r"^[ \t]+(?:\w+\.)*init_process_group\(", source, re.MULTILINE):
        return False
    try:
        return not re.search(r"\bspawn\(", source) and _joins(parsed(source))
    except RecursionError:
        return False


def _joins(node: ast.AST | None) -> bool:
    """Whether it joins a group of processes in any case, by what a launcher says."""
    for child in ast.iter_child_nodes(node) if node else ():
        called = child.func if isinstance(child, ast.Call) else None
        name = getattr(called, "attr", getattr(called, "id", ""))
        if isinstance(child, ast.Call) and name == "init_process_group":
            return not {"rank", "world_size"} & {each.arg for each in child.keywords}
        is_choice = isinstance(child, ast.If | ast.Try) and "__main__" not in ast.dump(child)
        if not is_choice and _joins(child):
            return True
    return False


def _imports(node: ast.AST, *, inner: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (each.name for each in child.names)
        elif isinstance(child, ast.ImportFrom):
            # A relative import keeps its dots: it is the repository's own.
            module = "." * child.level + (child.module or "")
            yield from (
                [module] if child.module else (f"{module}{each.name}" for each in child.names)
            )
        elif isinstance(child, ast.Try) and _catches_imports(child):
            yield from _imports(ast.Module(child.finalbody, []), inner=inner)
        elif isinstance(child, ast.If) and "__main__" not in ast.dump(child.test):
            continue  # it depends on what is there, or on what was asked for
        elif inner or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _imports(child, inner=inner)


def _catches_imports(node: ast.Try) -> bool:
    caught = [ast.dump(each.type) if each.type else "Exception" for each in node.handlers]
    return any(
        re.search(r"ImportError|ModuleNotFound|'Exception'|^Exception", each) for each in caught
    )


def configurations(root: Path, words: Iterable[str], folder: str = "") -> dict[str, str]:
    """Return the configurations that a command names, each with its path; "" if it isn't there."""
    parts = [part for word in words for part in word.split("=", 1)]
    homes = [folder, "", *(part for part in parts if files.has(root, part, folder=True))]
    found = dict[str, str]()
    for part in (each for each in parts if each.endswith((".yaml", ".yml", ".json"))):
        paths = [posixpath.normpath(posixpath.join(home, part)) for home in homes]
        found[part] = next((path for path in paths if files.has(root, path)), "")
    return found


def outputs(root: Path, script: str, command: str, brought: Imported, configured: str) -> list[str]:
    """Return up to three folders: those of a command, else of a configuration, else defaults."""
    told = _TOLD.findall(command) or CONFIGURED.findall(configured)
    words = [word for word in command.split() if files.has(root, word)]
    named = [word for word in words if word.endswith(".py") and word != script]
    options = [path for path in brought.files if re.search(r"arg|param|config|option", path)]
    for path in dict.fromkeys([*named, script, *options[:_MOST_READ]]):
        source = source_of(root / path)
        told = told or [name for each in _WRITES for name in re.findall(each, source)]
    found = (name.removeprefix("./").strip("/") for name in told)
    return list(dict.fromkeys(name for name in found if name and "/" + name not in told))[:3]


def reads_variables(root: Path, script: str) -> list[str]:
    """Return the environment variables with keys or tokens that a script reads."""
    source = files.text_of_file(root / script, files.LARGEST_SCRIPT)
    found = re.findall(r"environ(?:\.get\(|\[)[\"']([A-Z][A-Z0-9_]*(?:KEY|TOKEN))[\"']", source)
    return list(dict.fromkeys(found))


def folder_variables(root: Path, brought: Imported) -> Iterator[str]:
    """Yield, in words, the variables by which the training chooses folders to write to."""
    for path in brought.files:
        for name in dict.fromkeys(_FOLDER_VARIABLE.findall(source_of(root / path))):
            yield f"{path} takes a folder of results from ${name}, which `env` may set"


def is_training(code: str) -> bool:
    """Whether an example or a notebook trains, in whatever framework."""
    return bool(_LEARNS.search(code) and re.search(r"loss|[Tt]rain|\.fit\(", code))


def notebook_imports(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (notebook, module) for the notebooks at the root and one folder down."""
    for path in files.below(root, 1):
        if path.suffix == ".ipynb":
            for module in _IMPORT.findall(source_of(path)):
                if len(module) < _LONGEST:
                    yield str(path.relative_to(root)), module.partition(".")[0]


def is_at_home(root: Path, beside: str, module: str) -> bool:
    """Whether a module is one of the repository's own."""
    homes = {root, root / "src", (root / beside).parent}
    return any((home / f"{module}{end}").exists() for home in homes for end in ("", ".py"))


def _cells(notebook: str) -> list[str]:
    try:
        cells = json.loads(notebook)["cells"]
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
