"""boxstrap's folder on the box, as each setup puts it in order, with the lock held."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from glob import escape, glob

from .. import SHELL_PROGRAMS
from ..git import BoxTree
from ..processes import is_alive
from ..run_folder import RunFolder, lines_of, names_in, write_whole
from ..runs import keep_monitor
from ..work.repair import remove_folder
from ..work.repository import placed_by_us
from .wanted import WantedSetup

_LEFT = ("trees", "*.new.*", "bin/*.new.*", "steps/*.new.*", "steps/*/*.new.*", "runs/*/.new.*")
_MOST_SETUPS = 20
_OLD_S = 120
"""What is younger may just be sent, and named later."""
_FOR_AGENTS = """\
# A box of boxstrap

Another machine set this box up and follows what runs here. It is rented by the hour, and may be given back.

- `runs/REPOSITORY/NAME/`: a run: `command`, `log`, `exit` (its exit code, once it is over). Reading is fine.
- The work is in the folder beside this one, its environment in `.venv` there. `. ~/.boxstrap/env` sets its variables.
- The training runs in `tmux -L boxstrap`: `tmux -L boxstrap ls`. End a run from the other machine: `boxstrap stop`.

Do not change or delete anything in this folder: runs, the queue, the lease and the next setup rely on it.
`env` and `secrets` hold secrets: do not print, copy or send them.
Do not edit tracked files here: the next setup stops because of them. Edit at the other machine and send: `boxstrap sync`.
Only what the profile names as `train.results` is brought home: write results there.
Do not end or extend the lease, and start nothing that outlives your task: it costs money."""  # noqa: E501
"""For whoever lands here without boxstrap, such as a coding agent."""


def put_in_order(wanted: WantedSetup, tree: BoxTree) -> None:
    """Prepare what the steps need. `tree`: the repository's folder."""
    home = wanted.home
    for left in (*_LEFT, "steps/*/beside/*/*.new.*"):
        _remove(glob(f"{escape(home)}/{left}"))
    if not wanted.values.is_local:
        _link_home(home)
    if tree.path != wanted.workdir:
        _guard_settings(wanted.workdir)
    if not _is_same(f"{home}/box/current", SHELL_PROGRAMS):
        with suppress(OSError):  # who has just found it is about to start it
            os.utime(f"{home}/box/current/.")
        link(f"{home}/box/current", os.path.basename(SHELL_PROGRAMS))
    sweep_programs(home)
    _write_if_changed(f"{home}/AGENTS.md", _FOR_AGENTS, 0o644)
    # Whether its profile has a lease or not: a restart of the box ended its monitor.
    keep_monitor.keep(home)
    if "repo" in wanted.steps:
        _note_repository(wanted, tree)


def link(path: str, target: str) -> None:
    new = f"{path}.new.{os.getpid()}"
    os.symlink(target, new)
    os.replace(new, path)


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        remove_folder(path)
        with suppress(OSError):
            os.unlink(path)


def _is_same(one: str, other: str) -> bool:
    return os.path.exists(one) and os.path.exists(other) and os.path.samefile(one, other)


def _write_if_changed(path: str, text: str, mode: int = 0o600) -> None:
    if "\n".join(RunFolder(os.path.dirname(path)).lines(os.path.basename(path)) or []) != text:
        write_whole(path, text, mode)


def _link_home(home: str) -> None:
    """`~/.boxstrap` points to the folder next to the work, which a provider keeps. A folder that is
    no link of ours stays."""
    user = os.path.expanduser("~")
    usual = f"{user}/.boxstrap"
    is_others = os.path.exists(usual) and not os.path.islink(usual)
    if os.access(user, os.W_OK) and not (is_others or _is_same(usual, home)):
        with suppress(OSError):
            link(usual, home)


def _guard_settings(workdir: str) -> None:
    """Where others may put files above the working folder, or into it and not replace what is
    there: uv reads the nearest ones."""
    own = folder = os.path.realpath(workdir)
    while not _is_others_place(folder, is_own=folder == own):
        if folder == "/":
            return
        folder = os.path.dirname(folder)
    for name in ("pyproject.toml", "uv.toml", ".python-version"):
        with suppress(OSError), open(f"{own}/{name}", "xb") as file:
            here = f"# of boxstrap: others can write to {folder}, and uv looks there if this is not"
            file.write(os.fsencode(f"{here} here\n"))


def _is_others_place(folder: str, *, is_own: bool) -> bool:
    mode = os.stat(folder).st_mode
    if is_own and not mode & stat.S_ISVTX:
        return False
    return bool(mode & (stat.S_IWGRP | stat.S_IWOTH))


def sweep_programs(home: str) -> None:
    """Remove programs that nobody names: no process that is alive, no setup that begins or is at
    work, no recipe that a probe may run."""
    recipes = [
        f"{home}/steps/{key}/{name}"
        for key in names_in(f"{home}/steps")
        for name in ("setup.sh", "run.sh")
    ]
    setups = (RunFolder(f"{home}/setups/{name}") for name in names_in(f"{home}/setups"))
    recipes += [
        f"{setup.path}/setup.sh"
        for setup in setups
        if not setup.has("pid") or is_alive(setup.first("pid"))
    ]
    named: set[str] | None = None
    for name in names_in(f"{home}/box"):
        folder = f"{home}/box/{name}"
        is_old = os.lstat(folder).st_mtime < time.time() - _OLD_S
        if os.path.islink(folder) or not is_old or _is_same(folder, SHELL_PROGRAMS):
            continue
        named = {*_named(recipes)} if named is None else named
        if name not in named:
            remove_folder(folder)


def _named(recipes: Iterable[str]) -> Iterator[str]:
    for recipe in recipes:
        yield from (line[:16] for line in re.findall(r"^ *PROGRAM='(\w+)", _text(recipe), re.M))
    for process in filter(str.isdigit, names_in("/proc")):
        # tmux shows the command of its first session for ever.
        said = _text(f"/proc/{process}/cmdline")
        yield from re.findall(r"/box/(\w+)/", said) if said[:1] != "t" else ()


def _text(path: str) -> str:
    return "\n".join(lines_of(path))


def _note_repository(wanted: WantedSetup, tree: BoxTree) -> None:
    """Note what identifies this repository, and which folder is its own, as soon as that is
    known."""
    home, values, notes = wanted.home, wanted.values, tree.steps
    os.makedirs(notes, exist_ok=True)
    if root := values.repo_root:
        _write_if_changed(f"{notes}/repo.root", f"{root}\n")
    if not _is_strange(tree):
        _write_if_changed(f"{notes}/repo.dir", f"{tree.path}\n")
    for key in {values.repo_key, values.repo_usual_key} - {"", tree.key}:
        # A key that a repository of this box has as its own stays its own.
        own = (f"{home}/steps/{key}/setup.sh", f"{home}/runs/{key}")
        if not any(map(os.path.exists, own)):
            os.makedirs(f"{home}/steps/{key}", exist_ok=True)
            _write_if_changed(f"{home}/steps/{key}/repo.key", f"{tree.key}\n")


def _is_strange(tree: BoxTree) -> bool:
    """Whether this repository's folder contains something that boxstrap did not make."""
    notes, runs = RunFolder(tree.steps), f"{tree.home}/runs/{tree.key}"
    is_known = notes.has("repo.ok") or notes.has("repo.placed") or os.path.isdir(runs)
    if is_known or not os.path.lexists(tree.path) or placed_by_us(tree.path):
        return False
    return not os.path.isdir(tree.path) or bool(os.listdir(tree.path))


def forget_secrets(home: str) -> None:
    """Remove what killed setups left; a setup that waits, or is just being launched, still needs
    its file."""
    for name in names_in(f"{home}/setups"):
        setup = RunFolder(f"{home}/setups/{name}")
        path = f"{setup.path}/secrets"
        is_old = os.path.lexists(path) and os.lstat(path).st_mtime < time.time() - _OLD_S
        if is_old and not is_alive(setup.first("pid")):
            os.unlink(path)


def forget_old_setups(home: str) -> None:
    """Names start with the time, so the order of names is the order of time."""
    for name in names_in(f"{home}/setups")[:-_MOST_SETUPS]:
        remove_folder(f"{home}/setups/{name}")
