"""What a repository's scripts are: which may be the training, what it imports, where it writes.

All is read as text.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from bootstrap.profile.survey import files
from bootstrap.profile.survey.files import PACKAGES

_LONGEST = 200
"""Characters of a module's name that is looked for."""
_PROGRAM = re.compile(r"^if __name__ == [\"']__main__[\"']", re.MULTILINE)
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
_DEEPEST = 3
_MOST_SCRIPTS = 400
_FOLDER = (
    r"(?:out|output|work|save|log|ckpt|checkpoint|results?)[_-]?(?:dir|path|folder|root)"
    r"|logs|results|output_path"
)
_WRITES = (
    rf"\b(?:{_FOLDER})(?::\s*\w+)?\s*=\s*(?:ROOT\s*/\s*)?[\"']([^\"'\n]+)[\"']",
    r"--out(?:put)?[\"'],[^)\n]*default\s*=\s*[\"']([^\"'\n]+/)[\"']",
    rf"--(?:{_FOLDER})[\"'],[^)\n]*default\s*=\s*[\"']([^\"'\n]+)[\"']",
    r"--project[\"'],[^)\n]*default\s*=\s*(?:ROOT\s*/\s*)?[\"']([^\"'\n]+)[\"']",
    r"os\.(?:mkdir|makedirs)\([\"']([^\"'\n]+)[\"']",
)
_TOLD = re.compile(rf"(?:--(?:{_FOLDER})|--out(?:put)?|\s-o)[= ]'?([\w.,+@/-]+)")
_CONFIGURED = re.compile(rf"^\s*[\"']?(?:{_FOLDER})[\"']?\s*:\s*[\"']?([\w.+@/-]+)", re.MULTILINE)
_MOST_READ = 12  # modules of the training, for an option that says where it writes
LIKELY = 40
"""The least score of a script that is taken for the training."""


class TrainingCandidate(NamedTuple):
    """A script that may be the training."""

    path: str
    score: int


class Imported(NamedTuple):
    """What a script imports, directly and through modules of the repository."""

    packages: dict[str, str]
    """Packages, each with the file that imports it."""
    unknown: dict[str, str]
    """Modules whose package is not known, each with the file that imports it."""
    folders: tuple[str, ...]
    """Paths of folders in the repository, other than the script's own, that modules come from."""
    files: tuple[str, ...] = ()
    """The repository's own modules among them."""


def candidates(
    root: Path, said_to_run: Iterable[str], called: Mapping[str, str] = MappingProxyType({})
) -> list[TrainingCandidate]:
    """Return possible trainings, likeliest first; `said_to_run` are scripts that a page names.

    `called`: the command of the repository by which a script is run.
    """
    named = list(dict.fromkeys(said_to_run))
    found = []
    # `python setup.py install` is what many pages say to run.
    known = (path for path in files.below(root, _DEEPEST) if path.suffix == ".py")
    scripts = [path for path in known if path != root / "setup.py"]
    for path in scripts[:_MOST_SCRIPTS]:
        name, depth = path.name, len(path.relative_to(root).parts) - 1
        source = files.text_of_file(path, files.LARGEST_SCRIPT)
        relative = str(path.relative_to(root))
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


def learns(source: str) -> bool:
    """Whether it imports a framework and does what only a training does."""
    return bool(_FRAMEWORK.search(source) and _LEARNS.search(source))


def is_program(path: Path) -> bool:
    """Whether it is made to be run."""
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
    while waiting and len(seen) < _MOST_SCRIPTS:
        path = waiting.pop(0)
        where = str(path.relative_to(root))
        for module in _modules(path, own=path == root / script):
            name = module.lstrip(".")
            above = len(module) - len(name)
            homes = [path.parent, home, root, root / "src"]
            base, files_of = _at_home(name, [[path, *path.parents][above]] if above else homes)
            base = home if above else base
            if above and not files_of:
                continue
            if files_of:
                if base not in (home, path.parent):
                    folders.append("." if base == root else str(base.relative_to(root)))
                waiting += [each for each in files_of if each not in seen]
                seen.update(files_of)
                continue
            top = module.partition(".")[0]
            if module in PACKAGES:
                packages.setdefault(PACKAGES[module], where)
            if top in PACKAGES:
                packages.setdefault(PACKAGES[top], where)
            elif top not in sys.stdlib_module_names:
                unknown.setdefault(top, where)
    own = sorted(str(path.relative_to(root)) for path in seen if path.suffix == ".py")
    options = [path for path in own if re.search(r"arg|param|config|option", path)]
    return Imported(packages, unknown, tuple(dict.fromkeys(folders)), tuple(options))


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
    source = files.text_of_file(path, files.LARGEST_SCRIPT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        found = [*_imports(tree, inner=own)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        found = _IMPORT.findall(source)
    return [one for one in dict.fromkeys(found) if len(one) < _LONGEST]


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


def outputs(root: Path, script: str, command: str, brought: Imported) -> list[str]:
    """Return up to three folders: those of a command, else of a configuration, else defaults."""
    told = _TOLD.findall(command)
    words = [word for word in command.split() if files.has(root, word)]
    for path in words:
        if path.endswith((".yaml", ".yml", ".json")):
            told = told or _CONFIGURED.findall(files.text_of_file(root / path))
    named = [word for word in words if word.endswith(".py") and word != script]
    for path in dict.fromkeys([*named, script, *brought.files[:_MOST_READ]]):
        source = files.text_of_file(root / path, files.LARGEST_SCRIPT)
        told = told or [name for each in _WRITES for name in re.findall(each, source)]
    found = (name.removeprefix("./").strip("/") for name in told)
    return list(dict.fromkeys(name for name in found if name and "/" + name not in told))[:3]


def reads_variables(root: Path, script: str) -> list[str]:
    """Return the environment variables with keys or tokens that a script reads."""
    source = files.text_of_file(root / script, files.LARGEST_SCRIPT)
    found = re.findall(r"environ(?:\.get\(|\[)[\"']([A-Z][A-Z0-9_]*(?:KEY|TOKEN))[\"']", source)
    return list(dict.fromkeys(found))


def notebook_imports(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (notebook, module) for the notebooks at the root and one folder down."""
    for path in files.below(root, 1):
        if path.suffix == ".ipynb":
            cells = "\n".join(_cells(files.text_of_file(path, files.LARGEST)))
            for module in _IMPORT.findall(cells):
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
