"""Compile what a training will import, on idle cores, while it begins to import it.

    bytecode.py ENVIRONMENT TREE COMMAND

Run by the environment's own Python, whose bytecode it is. The training compiles what it imports
from the first module on; this goes from the last one to the first, and they meet. The scripts of
the command are read, never run. On one core it does nothing.
"""

from __future__ import annotations

import contextlib
import os
import py_compile
import re
import shlex
import sys
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path

if not __package__:  # run as a file: PEP 366
    sys.path[0], __package__ = str(Path(__file__).resolve().parents[1]), "box"

from . import machine_limits
from .imports import Walk

MOST_WORKERS = 8
DEEPEST = 10_000  # calls: four for each module that imports another


def entries(command: str, tree: Path, environment: Path) -> Iterator[Path | str]:
    """What a command runs: scripts by their paths, modules by their names."""
    words = [word for line in command.splitlines() for word in split(line)]
    for before, word in zip(["", *words], words, strict=False):
        file = tree / word
        if before == "-m":
            yield word
        elif word.endswith(".py") and file.is_file():
            yield file
        elif word.endswith(".sh") and file.is_file():
            yield from entries(file.read_text("utf-8", "replace"), tree, environment)
        elif "/" not in word and is_script(environment / "bin" / word):
            yield environment / "bin" / word


def split(line: str) -> list[str]:
    """The words of a line of shell, as far as that can be told."""
    with contextlib.suppress(ValueError):
        return shlex.split(line, comments=True)
    return re.findall(r"[^\s'\"]+", line)


def is_script(file: Path) -> bool:
    """Whether it is one of the environment's own programs in Python, as torchrun is."""
    try:
        with file.open("rb") as stream:
            return re.match(rb"#!.*python", stream.readline(400)) is not None
    except OSError:
        return False


def modules_of(command: str, tree: Path, environment: Path) -> list[str]:
    """The files of the environment that the command will import, the first one first."""
    sites = sorted(environment.glob("lib/python3*/site-packages"))
    walk = Walk([tree, tree / "src", *sites], environment)
    sys.setrecursionlimit(DEEPEST)
    with contextlib.suppress(RecursionError):
        for each in [*entries(command, tree, environment)]:
            if isinstance(each, str):
                walk.module(each)
            else:
                walk.script(each)
    return walk.order


def compile_all(files: list[str]) -> None:
    """Compile those that nobody compiled yet. What can't be is the training's to report."""
    for file in files:
        if not Path(cache_from_source(file)).exists():
            with contextlib.suppress(OSError, ValueError):
                py_compile.compile(file, quiet=2)


def granted_cores() -> int:
    """The cores that this process may use at once."""
    quota = machine_limits.cpu_quota(Path("/"))
    allowed = len(os.sched_getaffinity(0))
    return min(allowed, int(quota)) if quota else allowed


def main(words: list[str]) -> None:
    """Compile, with a worker for each core but the training's."""
    environment, tree, command = words
    workers = min(granted_cores() - 1, MOST_WORKERS)
    if workers < 1:
        return
    os.nice(19)
    last_first = modules_of(command, Path(tree), Path(environment))[::-1]
    for worker in range(1, workers):
        if os.fork() == 0:
            compile_all(last_first[worker::workers])
            os._exit(0)
    compile_all(last_first[::workers])


if __name__ == "__main__":
    main(sys.argv[1:])
