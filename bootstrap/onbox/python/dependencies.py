"""Private git repositories that the environment is made from. The machine that started this may
read them, and sends them into stores on the box; git, when the installer runs it, is redirected
there instead of to their host.

A row is `STORE COMMIT ADDRESS`; COMMIT is `-` if the repository names none, STORE is `-` if the box
fetches the dependency itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..client import Client
from ..git import BoxGit
from ..step_report import StepError, tell
from ..work.repair import wrong_packs


def await_dependencies(home: str, setup: str, rows: Sequence[str]) -> None:
    """When a hook runs this at boot, nobody sends anything: what came with the first setup is
    there."""
    split = [row.split(" ", 2) for row in rows]
    if os.environ.get("CLIENT_SENDS") and not all(_is_here(home, *row[:2]) for row in split):
        tell("wait code=dependencies")
        if not Client(setup).brings("dependencies"):
            raise StepError("dependency-missing", "a private dependency never arrived")
    _lead_git(home, split)


def _is_here(home: str, store: str, commit: str) -> bool:
    """The commit behind a name may have changed, so one without a commit is asked for again."""
    if store == "-":
        return True
    git = BoxGit(f"{home}/dependencies/{store}.git")
    is_whole = not wrong_packs(f"{git.folder}/packs", f"{git.folder}/objects/pack")
    name = f"refs/boxstrap/{commit}^{{commit}}"
    return os.path.isdir(git.folder) and is_whole and bool(git.id_of(name))


def _lead_git(home: str, rows: Sequence[Sequence[str]]) -> None:
    """For this step's own processes only. git takes the longest address that matches, so an address
    that is left to the box, and starts like another one, is mapped to itself."""
    for store, _, address in rows:
        folder = f"{home}/dependencies/{store}.git"
        if store != "-" and not os.path.isdir(folder):
            continue
        name = f"url.{address if store == '-' else f'file://{folder}'}.insteadOf"
        count = int(os.environ.get("GIT_CONFIG_COUNT") or 0)
        os.environ[f"GIT_CONFIG_KEY_{count}"] = name
        os.environ[f"GIT_CONFIG_VALUE_{count}"] = address
        os.environ["GIT_CONFIG_COUNT"] = str(count + 1)
        # git before 2.31 only knows this variable, which `git -c` uses for its own children.
        before = os.environ.get("GIT_CONFIG_PARAMETERS", "")
        os.environ["GIT_CONFIG_PARAMETERS"] = f"{before} '{name}={address}'".lstrip()
