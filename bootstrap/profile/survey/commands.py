"""Which commands a README and scripts show: to install, to run, to train. All is read as text."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from bootstrap.profile.survey import files
from bootstrap.profile.survey.files import PACKAGES

_FENCE = re.compile(r"^\s*(```|~~~)")
_CONTINUED = re.compile(r"\\\n(?!\s*(?:```|~~~))")
_CODE = re.compile(r"`([^`\n]{3,500})`")
_PROMPT = re.compile(r"^\s*(?:[$>!%#]\s+|!|\d+\.\s+|[-*]\s+)*(?=\S)")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*")
_PYTHON = re.compile(r"(?:\.?[\w./-]*/)?python[0-9.]*")
_FILLED_IN = re.compile(r"(?i:path[/_]to|<[^>]*>|\.\.\.|\byour)|\{[^}]*\}|[$]|^[A-Z]$")
_NODES = re.compile(r"--(?:node[-_]rank|master[-_]addr|machine[-_]rank)|--nnodes[= ](?!1\b)")
_LAUNCHERS = {"torchrun", "deepspeed"}
# A launcher's options for the number of GPUs: replaced or dropped, since the box's may differ.
_GPUS = re.compile(r"--nproc[-_]per[-_]node(=.*)?")
_COUNTS = re.compile(r"--(?:num_processes|num_gpus|num_machines|master[-_]port)(=.*)?")
_VALUED = {"-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-c", "--constraint"}
_VALUED |= {"--group", "--extra", "-t", "--target", "--python", "-p", "--with"}


@dataclass(frozen=True)
class Install:
    """One command that installs something."""

    file: str
    packages: tuple[str, ...] = ()
    requirement_files: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    own: bool = False
    """Whether the repository itself is installed."""


@dataclass(frozen=True)
class ScriptCommand:
    """One command that runs a script of the repository."""

    file: str
    script: str
    """Its path from the repository's root."""
    words: tuple[str, ...]
    unfilled: tuple[str, ...] = ()
    """Placeholders that the reader has to fill in."""

    @property
    def text(self) -> str:
        """The command, for any number of GPUs."""
        return shlex.join(self.words)

    @property
    def arguments(self) -> str:
        """The words after the first, as one text."""
        return " ".join(self.words[1:])


@dataclass
class Said:
    """The commands in a repository's files, in their order."""

    installs: list[Install] = field(default_factory=list)
    runs: list[ScriptCommand] = field(default_factory=list)
    own: dict[str, str] = field(default_factory=dict)
    """Commands that the repository installs, each with its script."""

    @property
    def called(self) -> dict[str, str]:
        """Scripts that such commands run, each with the command."""
        return {run.script: run.words[0] for run in self.runs if run.words[0] in self.own}


def read_commands(root: Path) -> Said:
    """Collect the commands of the README, then those of run scripts."""
    said = Said(own=_own_commands(root))
    top = sorted(files.inside(root), key=lambda path: len(path.name))
    for path in [path for path in top if path.name.lower().startswith("readme")][:1]:
        for folder, line in _lines_of_page(files.text_of_file(path, files.LARGEST_SCRIPT), root):
            _take(said, root, path.name, folder, line)
    for path in [path for path in files.below(root, 1) if path.suffix == ".sh"][:20]:
        for line in _CONTINUED.sub(" ", files.text_of_file(path)).splitlines():
            _take(said, root, str(path.relative_to(root)), "", line)
    return said


def _lines_of_page(page: str, root: Path) -> Iterator[tuple[str, str]]:
    """Yield (folder, line) for code blocks and inline code; `cd` in a block sets the folder."""
    block, folder = False, ""
    for line in _CONTINUED.sub(" ", page).splitlines():
        if _FENCE.match(line):
            block, folder = not block, ""
        elif block or line.startswith(("    ", "\t")):
            words = line.strip().lstrip("$ ").split()
            if words[:1] == ["cd"] and len(words) == 2 and (root / folder / words[1]).is_dir():
                folder = str(PurePosixPath(folder) / words[1])
            yield folder, line
        else:
            yield from (("", code) for code in _CODE.findall(line))


def _take(said: Said, root: Path, file: str, folder: str, line: str) -> None:
    line = _PROMPT.sub("", line, count=1).rstrip("\\ ")
    for part in re.split(r"\s*(?:&&|;)\s*", line[:2000]):
        try:
            words = shlex.split(part, comments=True)
        except ValueError:
            continue
        words = _without_wrapping(words)
        if not words or ".." in folder:
            continue
        install = _install(file, words)
        run = None if install else _run(root, file, folder, words)
        if words[0] in said.own:
            unfilled = tuple(word for word in words if _FILLED_IN.search(word))
            run = ScriptCommand(file, said.own[words[0]], tuple(words), unfilled)
        if install:
            said.installs.append(install)
        elif run:
            said.runs.append(run)


def _own_commands(root: Path) -> dict[str, str]:
    """Return the commands that a project is installed with, and the script of each."""
    data = files.toml(root / "pyproject.toml")
    project = data.get("project")
    listed = project.get("scripts") if isinstance(project, dict) else None
    if "build-system" not in data or not isinstance(listed, dict):
        return {}
    found = {}
    for name, entry in listed.items():
        script = str(entry).partition(":")[0].replace(".", "/") + ".py"
        paths = [path for path in (f"src/{script}", script) if (root / path).is_file()]
        if paths:
            found[name] = paths[0]
    return found


def _without_wrapping(words: list[str]) -> list[str]:
    """Remove variables, `sudo`, `uv run` and the like before a command, and what follows it."""
    for at, word in enumerate(words):
        if word in ("|", "&", "||") or re.match(r"\d?>|&>", word):
            words = words[:at]
            break
    while words:
        if words[0] in ("sudo", "time", "nohup", "exec", "nice") or _ASSIGNED.fullmatch(words[0]):
            words = words[1:]
        elif words[:2] in (["uv", "run"], ["poetry", "run"], ["pipenv", "run"]):
            words = words[2:]
            while words and words[0].startswith("-") and words[0] != "-m":
                words = words[2 if words[0] in _VALUED else 1 :]
            if words[:1] == ["-m"] or (words and words[0].endswith(".py")):
                words = ["python", *words]
        else:
            return words
    return words


def _install(file: str, words: list[str]) -> Install | None:
    program = words[0]
    if _PYTHON.fullmatch(program) and words[1:3] == ["-m", "pip"]:
        words = words[2:]
    elif words[:2] == ["uv", "pip"]:
        words = words[1:]
    elif words[:2] in (["uv", "add"], ["uv", "sync"]):
        words = ["pip", "install", *words[2:]]
    if not re.fullmatch(r"pip[0-9.]*", words[0]) or words[1:2] != ["install"]:
        return None
    return _arguments(file, words[2:], own=program == "uv")


def _arguments(file: str, words: list[str], *, own: bool) -> Install:
    found: dict[str, list[str]] = {}
    waiting = ""
    kinds = {"-r": "requirement_files", "--requirement": "requirement_files", "-e": "own"}
    kinds |= {"--editable": "own", "--extra": "extras", "--group": "groups"}
    kinds |= {"-i": "indexes", "--index-url": "indexes", "--extra-index-url": "indexes"}
    for word in words:
        option, equals, value = word.partition("=")
        if waiting:
            found.setdefault(waiting, []).append(word)
            waiting = ""
        elif word.startswith("-"):
            kind = kinds.get(option, "ignored")
            if equals and option.startswith("--"):
                found.setdefault(kind, []).append(value)
            elif option in kinds or option in _VALUED:
                waiting = kind
        elif word.startswith("."):
            found.setdefault("own", []).append(word)
        else:
            found.setdefault("packages", []).append(word)
    here = found.pop("own", [])
    extras = [name for each in here for name in re.findall(r"\[(.*)\]", each)]
    listed = [name.strip() for each in extras for name in each.split(",")]
    found["extras"] = [*found.get("extras", []), *listed]
    found.pop("ignored", None)
    return Install(
        file, own=own or bool(here), **{name: tuple(each) for name, each in found.items()}
    )


def _run(root: Path, file: str, folder: str, words: list[str]) -> ScriptCommand | None:
    """Return the command if it runs an existing script on one node, else None."""
    launched = words[0] in _LAUNCHERS or words[:2] == ["accelerate", "launch"]
    if not launched and not _PYTHON.fullmatch(words[0]):
        return None
    if not launched:
        words = ["python", *words[1:]]
    if words[1:3] in (["-m", "torch.distributed.launch"], ["-m", "torch.distributed.run"]):
        words = ["torchrun", *(word for word in words[3:] if word != "--use_env")]
    at = next((n for n, word in enumerate(words) if n and _is_script(words, n)), 0)
    script = _path_of(words, at)
    for home in dict.fromkeys((folder, "")):
        path = str(PurePosixPath(home) / script)
        if at and (root / path).is_file():
            if home and words[at].endswith(".py"):
                words = [*words[:at], path, *words[at + 1 :]]
            words = [*_for_any_box(words[:at]), *words[at:]]
            text = shlex.join(words)
            unfilled = tuple(word for word in words if _FILLED_IN.search(word))
            return (
                None if _NODES.search(text) else ScriptCommand(file, path, tuple(words), unfilled)
            )
    return None


def _is_script(words: list[str], at: int) -> bool:
    return words[at].endswith(".py") or words[at - 1] == "-m"


def _path_of(words: list[str], at: int) -> str:
    word = words[at] if at else ""
    return word if word.endswith(".py") else word.replace(".", "/") + ".py"


def _for_any_box(words: list[str]) -> list[str]:
    """Return a launcher's words, changed to use as many GPUs as the box has."""
    found, skipped = list[str](), False
    for word in words:
        if skipped:
            skipped = False
        elif _GPUS.fullmatch(word):
            found.append("--nproc_per_node=gpu")
            skipped = "=" not in word
        elif _COUNTS.fullmatch(word):
            skipped = "=" not in word
        elif word != "--multi_gpu":
            found.append(word)
    return found


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
_FOLDER = r"(?:out|output|work|save|log|ckpt|checkpoint|results?)[_-]?(?:dir|path|folder|root)"
_WRITES = (
    rf"\b{_FOLDER}(?::\s*\w+)?\s*=\s*(?:ROOT\s*/\s*)?[\"']([^\"'\n]+)[\"']",
    r"--out(?:put)?[\"'],[^)\n]*default\s*=\s*[\"']([^\"'\n]+/)[\"']",
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
        learns = bool(_FRAMEWORK.search(source) and _LEARNS.search(source))
        runs = bool(_PROGRAM.search(source)) or relative in named
        command = called.get(relative, "")
        by_name = max(map(_score_of_name, filter(None, (name, command))))
        if by_name <= 0 and not (learns and runs and by_name == 0) and not (runs and not depth):
            continue
        is_of_package = not by_name > 0 and (path.parent / "__init__.py").exists()
        if (depth > 1 and not learns and not command) or (is_of_package and relative not in named):
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
    source = files.text_of_file(path, files.LARGEST_SCRIPT)
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
        source = files.text_of_file(root / path, files.LARGEST_SCRIPT)
        told = told or [name for each in _WRITES for name in re.findall(each, source)]
    found = (name.removeprefix("./").strip("/") for name in told)
    return list(dict.fromkeys(name for name in found if name))[:3]


def reads_variables(root: Path, script: str) -> list[str]:
    """Return the environment variables with keys or tokens that a script reads."""
    source = files.text_of_file(root / script, files.LARGEST_SCRIPT)
    found = re.findall(r"environ(?:\.get\(|\[)[\"']([A-Z][A-Z0-9_]*(?:KEY|TOKEN))[\"']", source)
    return list(dict.fromkeys(found))


def notebook_imports(root: Path) -> Iterator[tuple[str, str]]:
    """Yield (notebook, module) for the notebooks at the root and one folder down."""
    for path in files.below(root, 1):
        if path.suffix == ".ipynb":
            for module in _IMPORT.findall(
                "\n".join(_cells(files.text_of_file(path, files.LARGEST)))
            ):
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
