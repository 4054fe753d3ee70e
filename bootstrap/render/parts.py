"""The static parts of what is sent to a box, read from the shipped templates.

They are plain files that shellcheck reads as they are; nothing is substituted
inside them. The first line, which tells the linter which shell it is, is left out.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from bootstrap.paths import shipped

LIBRARY = (
    "main",
    "setup",
    "base",
    "process",
    "run_state",
    "run_processes",
    "queue",
    "repository",
    "events",
    "errors",
    "stamps",
    "lock",
    "packs",
    "git_locks",
    "git",
    "place",
    "trees",
    "engine",
    "packages",
    "uv",
    "venv",
    "dependencies",
    "sources",
    "uv_progress",
    "conda",
    "fits",
    "reuse",
    "bytecode",
    "work",
    "runs",
    "resume",
)
"""`templates/lib/*.sh`, in the order in which a reader of the script wants them."""

STEPS_LIBRARY = frozenset(
    {
        *("packages", "uv", "venv", "dependencies", "sources", "uv_progress", "conda", "fits"),
        *("reuse", "bytecode"),
    }
)
"""Those of the library that stand among the steps, whose words they are: what a box runs from
memory goes to it as two arguments, library and steps, and each has a limit."""

_LINT = re.compile(r"\A# shellcheck .*\n")
_LIBRARY_HERE = re.compile(r"^ *# library: ([a-z_/ ]+)\n", re.MULTILINE)
"""A program that outlives the script carries parts of the library, or of queries: put in here."""
_OF_QUESTIONS = ("transfer", "report")
"""Folders of programs that travel with a question and don't stay on a box."""
_OF_TRANSFERS = ("complete_files.py", "held_files.py")
"""What programs that stay there share with those of an exchange."""
_OF_STEPS = {"data": ("data_", "fetch_data"), "lease": ("lease",)}
_BOX = Path(__file__).resolve().parent.parent / "box"


@cache
def shell_part(kind: str, name: str) -> str:
    """The text of `templates/<kind>/<name>.sh`, without the linter's comments."""
    text = (shipped("templates") / kind / f"{name}.sh").read_text(encoding="utf-8")
    return _LINT.sub("", text)


@cache
def box_files() -> tuple[tuple[str, str], ...]:
    """Name and text of every file that lies in `box/` on the box, sorted by name.

    They lie beside each other there, and import each other so, whatever their folder here.
    """
    sources = _sources()
    folders = "|".join({file.parent.name for file in sources.values()})
    import_of_folder = re.compile(rf"^( *from )\.\.(?:(?:{folders})\b\.?)?", re.MULTILINE)
    texts = {name: import_of_folder.sub(r"\1.", _text(file)) for name, file in sources.items()}
    texts.update((file.name, _text(file)) for file in (shipped("templates") / "box").glob("*.sh"))
    return tuple((name, _LIBRARY_HERE.sub(_library, text)) for name, text in sorted(texts.items()))


def step_of(name: str) -> str:
    """The step that this file of `box/` is of, where few profiles ask for that; else ""."""
    return next((step for step, begins in _OF_STEPS.items() if name.startswith(begins)), "")


@cache
def _sources() -> dict[str, Path]:
    """The programs that stay on a box, by their names there."""
    files = [*_BOX.glob("*.py"), *_BOX.glob("*/*.py")]
    stay = [file for file in files if file.parent.name not in _OF_QUESTIONS]
    stay += [_BOX / "transfer" / name for name in _OF_TRANSFERS]
    return {file.name: file for file in stay if file.name != "__init__.py"}


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8").rstrip("\n")


def _library(named: re.Match[str]) -> str:
    parts = (f"lib/{part}".split("/")[-2:] for part in named[1].split())
    return "".join(shell_part(kind, part) for kind, part in parts)


@cache
def known_hosts() -> tuple[str, ...]:
    """The git hosts' own public keys, one known_hosts line each."""
    text = (shipped("templates") / "known_hosts").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


@cache
def functions(kind: str, name: str, wanted: tuple[str, ...]) -> str:
    """Some functions of `templates/<kind>/<name>.sh` as they stand there, with their comments.

    A function ends on its own line or with a `}` at the start of one. Raises
    KeyError where the file has no such function.
    """
    found = {match["name"]: match[0] for match in _FUNCTION.finditer(shell_part(kind, name))}
    return "".join(found[each] + "\n" for each in wanted)


_FUNCTION = re.compile(
    r"(?:^#.*\n)*^(?P<name>[a-z_]+)\(\) (?:\{ .* \}|\{\n(?:.*\n)*?\})$", re.MULTILINE
)
