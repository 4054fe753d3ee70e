"""What a box has already of a repository, which runs, and whether its lease is kept: lines of a
word, a tab and a value, and the documents of `runs/status.py`. Looks only.

Comes with a query, with BOX_HOME KEY ROOT SCRIPT DETAILS. A caller that names a SCRIPT, by its
SHA-256, will send its commit: it is told the plan, if this script was the last, and which commits
are here.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from . import SHELL_PROGRAMS
from .git import BoxTree
from .processes import forget_locale, is_alive
from .run_folder import RunFolder
from .runs import status
from .short_program import run
from .step_report import answer
from .work.repair import wrong_packs
from .work.repository import find_repository

_MOST = 20


def _of_repository(tree: BoxTree) -> Iterator[tuple[str, str]]:
    yield "key", tree.key
    yield "dir", tree.path
    if os.path.isdir(tree.path):
        yield "placed", "yes"
    yield "venv", tree.note("python.venv")
    yield "switch", tree.note("repo.switch").partition(" ")[0]
    yield "work", tree.note("train.ok")


def _commits(tree: BoxTree) -> Iterator[str]:
    """Yield what was placed last first: the next snapshot resembles it most, and a snapshot's date
    does not show its age. Then what came last."""
    store = tree.store.folder
    if not os.path.isdir(store) or wrong_packs(f"{store}/packs", f"{store}/objects/pack"):
        return
    sent = f"{store}/refs/boxstrap"
    placed = RunFolder(tree.placed.folder).first("HEAD")
    if placed and os.path.isfile(f"{sent}/{placed}"):
        yield placed
    with suppress(OSError), os.scandir(sent) as files:
        came = sorted(files, key=lambda file: -file.stat().st_mtime)
        yield from (file.name for file in came[:_MOST])


def _plan(tree: BoxTree, script: str) -> None:
    from hashlib import sha256  # late: `status` asks for none

    own = f"{tree.steps}/setup.sh"
    with suppress(OSError), open(own, "rb") as file:
        known = sha256(file.read()).hexdigest()
        answer("script", known)
        if known == script:
            forget_locale()
            _tell_planned(own)


def _tell_planned(script: str) -> None:
    """Print the plan; a script of another version asks its own program."""
    with suppress(Exception):  # whatever it is, its shell still tells that all is new
        from .setup import plan
        from .setup.wanted import WantedSetup

        wanted = WantedSetup(script, [])
        if wanted.values.program.startswith(os.path.basename(SHELL_PROGRAMS)):
            plan.tell(wanted)
            return
    os.write(1, run(["bash", script, "plan"], os.environ).output)


def main() -> None:
    home, key, root, script, details = sys.argv[1:]
    kernel = os.uname()
    answer("system", f"{kernel.sysname} {kernel.machine}")
    answer("time", str(int(time.time())))
    folder, files = "", RunFolder(home)
    if key:
        key, folder = find_repository(home, key, root, "")
        for word, said in _of_repository(BoxTree(home, key, folder)):
            if said:
                answer(word, said)
    if files.has("lease.json"):
        kept = "kept" if is_alive(files.first("lease.pid")) else "lost"
        answer("lease", f"{kept}\t{files.first('lease.state')}")
    try:
        status.tell(home, key, folder, details)
    except Exception:  # whatever it is: that is what is to be known
        answer("unread", "yes")
    if script:
        tree = BoxTree(home, key, folder)
        _plan(tree, script)
        for commit in _commits(tree):
            answer("have", commit)
