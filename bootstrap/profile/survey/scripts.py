"""Find scripts that may be the training, what they and notebooks import, and where they write.
They are read as text and never run."""

from __future__ import annotations

import ast
import json
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from bootstrap.profile.survey import files
from bootstrap.profile.survey.packages import PACKAGES

_PROGRAM = re.compile(r"^if __name__ == [\"']__main__[\"']", re.MULTILINE)
_IMPORT = re.compile(r"^\s*(?:import|from)\s+([A-Za-z_][\w.]*)", re.MULTILINE)
_FRAMEWORK = re.compile(
    r"^\s*(?:import|from)\s+(?:torch|jax|flax|tensorflow|keras|lightning|pytorch_lightning|transformers"
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
_FOLDER = r"(?:out|output|work|save|log|ckpt|checkpoint|results?)[_-]?(?:dir|path|folder|root)"
_WRITES = (
    rf"\b{_FOLDER}(?::\s*\w+)?\s*=\s*(?:ROOT\s*/\s*)?[\"']([^\"'\n]+)[\"']",
    rf"--{_FOLDER}[\"'],[^)\n]*default\s*=\s*[\"']([^\"'\n]+)[\"']",
    r"--project[\"'],[^)\n]*default\s*=\s*(?:ROOT\s*/\s*)?[\"']([^\"'\n]+)[\"']",
    r"os\.(?:mkdir|makedirs)\([\"']([^\"'\n]+)[\"']",
)
_TOLD = re.compile(rf"(?:--{_FOLDER}|--out(?:put)?|\s-o)[= ]'?([\w.,+@/-]+)")
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


def candidates(root: Path, said_to_run: Iterable[str]) -> list[TrainingCandidate]:
    """Return possible trainings, likeliest first; `said_to_run` are scripts that a page names."""
    named = list(dict.fromkeys(said_to_run))
    found = []
    scripts = [path for path in files.below(root, _DEEPEST) if path.suffix == ".py"]
    for path in scripts[:_MOST_SCRIPTS]:
        name, depth = path.name, len(path.relative_to(root).parts) - 1
        source = files.text(path, files.LARGEST_SCRIPT)
        relative = str(path.relative_to(root))
        learns = bool(_FRAMEWORK.search(source) and _LEARNS.search(source))
        runs = bool(_PROGRAM.search(source)) or relative in named
        by_name = _score_of_name(name)
        if by_name <= 0 and not (learns and runs and by_name == 0) and not (runs and not depth):
            continue
        is_of_package = not by_name > 0 and (path.parent / "__init__.py").exists()
        if (depth > 1 and not learns) or (is_of_package and relative not in named):
            continue
        score = by_name + 25 * learns + 10 * runs + (15 if relative in named else 0)
        score += 15 if learns and runs else 0
        found.append(TrainingCandidate(relative, score + (10 if not depth else -5 * depth)))
    if len(found) == 1:
        found = [found[0]._replace(score=found[0].score + 15)]
    found.sort(key=lambda each: (-each.score, [*named, each.path].index(each.path), len(each.path)))
    return found


def _score_of_name(name: str) -> int:
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
            base, files_of = _at_home(module, (path.parent, home, root, root / "src"))
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
    return Imported(packages, unknown, tuple(dict.fromkeys(folders)))


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
    source = files.text(path, files.LARGEST_SCRIPT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        return list(dict.fromkeys(_imports(tree, inner=own)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return list(dict.fromkeys(_IMPORT.findall(source)))


def _imports(node: ast.AST, *, inner: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (each.name for each in child.names)
        elif isinstance(child, ast.ImportFrom):
            # A relative import is looked up next to the file, by its name without dots.
            module = child.module or ""
            yield from [module] if module else (each.name for each in child.names)
        elif isinstance(child, ast.Try) and _catches_imports(child):
            yield from _imports(ast.Module(child.finalbody, []), inner=inner)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        elif inner or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _imports(child, inner=inner)


def _catches_imports(node: ast.Try) -> bool:
    caught = [ast.dump(each.type) if each.type else "Exception" for each in node.handlers]
    return any(
        re.search(r"ImportError|ModuleNotFound|'Exception'|^Exception", each) for each in caught
    )


def outputs(root: Path, script: str, command: str) -> list[str]:
    """Return up to three folders that a command names for output, else the script's defaults."""
    told = _TOLD.findall(command)
    named = [word for word in command.split() if word.endswith(".py")]
    for path in dict.fromkeys([*(word for word in named if word != script), script]):
        source = files.text(root / path, files.LARGEST_SCRIPT)
        told = told or [name for each in _WRITES for name in re.findall(each, source)]
    found = (name.removeprefix("./").strip("/") for name in told)
    return list(dict.fromkeys(name for name in found if name))[:3]


def reads_variables(root: Path, script: str) -> list[str]:
    """Return the environment variables with keys or tokens that a script reads."""
    source = files.text(root / script, files.LARGEST_SCRIPT)
    found = re.findall(r"environ(?:\.get\(|\[)[\"']([A-Z][A-Z0-9_]*(?:KEY|TOKEN))[\"']", source)
    return list(dict.fromkeys(found))


def notebook_imports(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (notebook, module) for the notebooks at the root and one folder down."""
    for path in files.below(root, 1):
        if path.suffix == ".ipynb":
            for module in _IMPORT.findall("\n".join(_cells(files.text(path, files.LARGEST)))):
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
