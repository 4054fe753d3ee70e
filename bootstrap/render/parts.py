"""The static parts of scripts for a box, read from the shipped templates.

They are plain shell files that shellcheck can read; nothing is substituted
in them. The first line, a shellcheck directive, is left out.
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
    "owner",
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
    "client",
    "uv",
    "venv",
    "dependencies",
    "sources",
    "projects",
    "uv_progress",
    "conda",
    "fits",
    "reuse",
    "bytecode",
    "work",
    "runs",
    "resume",
)
"""`templates/lib/*.sh`, in a good order for readers of the script."""

STEPS_LIBRARY = frozenset(
    {
        *(
            "packages",
            "uv",
            "venv",
            "dependencies",
            "sources",
            "projects",
            "uv_progress",
            "conda",
            "fits",
        ),
        *("reuse", "bytecode"),
    }
)
"""Parts of the library that are put with the steps that use them: a box gets library and steps
as two arguments when it runs them from memory, and each argument has a size limit."""

_LINT = re.compile(r"\A# shellcheck .*\n")
_LIBRARY_HERE = re.compile(r"^ *# library: ([a-z_/ ]+)\n", re.MULTILINE)
"""Where a program that outlives the script includes parts of the library or of queries."""
_SENT_WITH_QUERIES = ("transfer", "report")
"""Folders of programs that are sent with a query and not stored on a box."""
_OF_TRANSFERS = ("complete_files.py", "run_results.py")
"""Modules of a transfer's program that programs stored on a box need too."""
_OF_FEW = {
    "data": ("data_", "fetch_data"),
    "lease": ("lease",),
    "train": ("keep_results",),
    "RESULTS_TO": ("upload_results", "s3_client"),
    "CONDA": ("conda",),
}
_BOX = Path(__file__).resolve().parent.parent / "box"


@cache
def shell_part(kind: str, name: str) -> str:
    """Return the text of `templates/<kind>/<name>.sh`, without its shellcheck directive."""
    text = (shipped("templates") / kind / f"{name}.sh").read_text(encoding="utf-8")
    return _LINT.sub("", text)


@cache
def box_files() -> tuple[tuple[str, str], ...]:
    """Return name and text of every file of `box/` on the box, sorted by name, shell first.

    There they are all in one folder, so imports of other folders are changed accordingly. Shell
    programs contain the same parts of the library: beside each other they compress best.
    """
    sources = _sources()
    folders = "|".join({file.parent.name for file in sources.values()})
    import_of_folder = re.compile(rf"^( *from )\.\.(?:(?:{folders})\b\.?)?", re.MULTILINE)
    texts = {name: import_of_folder.sub(r"\1.", _text(file)) for name, file in sources.items()}
    texts.update((file.name, _text(file)) for file in (shipped("templates") / "box").glob("*.sh"))
    ordered = sorted(texts.items(), key=lambda item: (not item[0].endswith(".sh"), item))
    return tuple((name, _LIBRARY_HERE.sub(_library, text)) for name, text in ordered)


def step_of(name: str) -> str:
    """Return the step or variable of few profiles that needs this file of `box/`; else ""."""
    return next((step for step, begins in _OF_FEW.items() if name.startswith(begins)), "")


@cache
def _sources() -> dict[str, Path]:
    """Return the programs that are stored on a box, by their names there."""
    files = [*_BOX.glob("*.py"), *_BOX.glob("*/*.py")]
    stay = [file for file in files if file.parent.name not in _SENT_WITH_QUERIES]
    stay += [_BOX / "transfer" / name for name in _OF_TRANSFERS]
    return {file.name: file for file in stay if file.name != "__init__.py"}


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8").rstrip("\n")


def _library(named: re.Match[str]) -> str:
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


_FUNCTION = re.compile(
    r"(?:^#.*\n)*^(?P<name>[a-z_]+)\(\) (?:\{ .* \}|\{\n(?:.*\n)*?\})$", re.MULTILINE
)
