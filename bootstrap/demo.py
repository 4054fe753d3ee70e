"""The demo: a repository of our own, and a box that is this machine. All of it in one folder."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bootstrap.contact import LOCAL, Asked
from bootstrap.paths import shipped, state_dir
from bootstrap.setup.drive import Wishes
from bootstrap.setup.perform import Order, perform
from bootstrap.ui.screen import Screen

_COMMITTER = ("-c", "user.name=boxstrap demo", "-c", "user.email=demo@example.org")


def show(screen: Screen) -> None:
    """Do the main job here, for real. Raises what a setup raises."""
    folder = state_dir() / "demo"
    repository = _repository(folder / "repository")
    screen.note("demo", f"everything lies in {folder}; delete it when you like")
    asked = Asked(
        host=LOCAL,
        profile="demo",
        sets=(f"box.workdir={folder / 'box'}",),
        repo=repository,
    )
    perform(Order(asked, Wishes(restart=True)), screen)


def _repository(folder: Path) -> Path:
    """A git repository with the demo's training; the commit is the same each time."""
    shutil.copytree(shipped("templates") / "demo", folder, dirs_exist_ok=True)
    if not (folder / ".git").is_dir():
        _git(folder, "init", "--quiet", "--template=", "--initial-branch=main")
    _git(folder, "add", "--all")
    if _git(folder, "status", "--porcelain"):
        _git(folder, *_COMMITTER, "commit", "--quiet", "--no-verify", "-m", "Fit a straight line")
    return folder


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "core.hooksPath=/dev/null", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
