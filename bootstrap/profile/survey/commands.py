"""Find install and run commands in a README and in run scripts. Nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from bootstrap.profile.survey import files

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


def read(root: Path) -> Said:
    """Collect the commands of the README, then those of run scripts."""
    said = Said()
    top = sorted(files.inside(root), key=lambda path: len(path.name))
    for path in [path for path in top if path.name.lower().startswith("readme")][:1]:
        for folder, line in _lines_of_page(files.text(path, files.LARGEST_SCRIPT), root):
            _take(said, root, path.name, folder, line)
    for path in [path for path in files.below(root, 1) if path.suffix == ".sh"][:20]:
        for line in _CONTINUED.sub(" ", files.text(path)).splitlines():
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
        if install:
            said.installs.append(install)
        elif run:
            said.runs.append(run)


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
