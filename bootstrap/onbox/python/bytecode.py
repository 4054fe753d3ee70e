"""Compile a training's imports on idle cores, while they are fetched and the training starts.

    onbox python.bytecode ENVIRONMENT TREE COMMAND [CACHE INSTALLED INSTALLER]

Runs on the environment's own Python, so that the bytecode is for that version. The training
compiles its imports from the first module on; this goes from the last one back, and they meet.
Until the file INSTALLED exists it compiles, in memory, what uv has unpacked in its CACHE, as long
as its parent is the process INSTALLER. The command's scripts are read, never run. On one core it
does nothing.
"""

from __future__ import annotations

import contextlib
import os
import py_compile
import re
import shlex
import sys
from collections.abc import Iterator
from functools import partial
from importlib.util import cache_from_source
from pathlib import Path

from .. import machine_limits
from .imports import FetchedModules, KnownSources, Walk

MOST_WORKERS = 8
DEEPEST = 10_000  # nested calls; each module that imports another takes four


def entries(command: str, tree: Path, environment: Path) -> Iterator[Path | str]:
    """Yield what a command runs: scripts as paths, modules as names."""
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
    """Split a line of shell into words, roughly if shlex can't parse it."""
    with contextlib.suppress(ValueError):
        return shlex.split(line, comments=True)
    return re.findall(r"[^\s'\"]+", line)


def is_script(file: Path) -> bool:
    """Return whether `file` is one of the environment's own Python programs, such as torchrun."""
    try:
        with file.open("rb") as stream:
            return re.match(rb"#!.*python", stream.readline(400)) is not None
    except OSError:
        return False


def modules_of(
    command: str,
    tree: Path,
    environment: Path,
    fetched: FetchedModules | None = None,
    known: KnownSources | None = None,
) -> list[str]:
    """Return the environment's files that the command will import, in import order.

    With `fetched`, return the files of its cache that will become the environment's.
    """
    sites = fetched.sites() if fetched else sites_of(environment)
    walk = Walk([tree, tree / "src", *sites], fetched.cache if fetched else environment, known)
    sys.setrecursionlimit(DEEPEST)
    with contextlib.suppress(RecursionError):
        for each in [*entries(command, tree, environment)]:
            if isinstance(each, str):
                walk.module(each)
            else:
                walk.script(each)
    return walk.order


def sites_of(environment: Path) -> list[Path]:
    return sorted(environment.glob("lib/python3*/site-packages"))


def compile_all(files: list[str]) -> None:
    """Compile the files without bytecode. Errors are ignored: the training will report them."""
    for file in files:
        if not Path(cache_from_source(file)).exists():
            with contextlib.suppress(OSError, ValueError):
                py_compile.compile(file, quiet=2)


def granted_cores() -> int:
    """Return the number of cores that this process may use at the same time."""
    quota = machine_limits.cpu_quota(Path("/"))
    allowed = len(os.sched_getaffinity(0))
    return min(allowed, int(quota)) if quota else allowed


def lower_priority() -> None:
    """Leave the cores to any process that wants them.

    If the kernel groups processes by session, niceness counts only within a group, and the group
    has a niceness of its own (sched(7)).
    """
    os.nice(19)
    if os.getsid(0) == os.getpid():
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text("19")


def main() -> None:
    """Compile with one worker while packages are fetched, then with one for each core but one."""
    words = sys.argv[1:]
    environment, tree = map(Path, words[:2])
    workers = min(granted_cores() - 1, MOST_WORKERS)
    if workers < 1:
        return
    lower_priority()
    walked = partial(modules_of, words[2], tree, environment, known=KnownSources())
    if words[3:]:
        cache, installed = map(Path, words[3:5])
        fetched = FetchedModules(cache, sites_of(environment)[0])
        fetched.compile_until(installed, int(words[5]), lambda: walked(fetched))
        fetched.land()
    last_first = walked()[::-1]
    for worker in range(1, workers):
        if os.fork() == 0:
            compile_all(last_first[worker::workers])
            os._exit(0)
    compile_all(last_first[::workers])
