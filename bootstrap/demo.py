"""The demo: a small repository, with this machine as the box. All of it is in one folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from bootstrap.link.record import LOCAL
from bootstrap.paths import shipped, state_dir
from bootstrap.repo.git import Folders, GitError, git_error, run_git
from bootstrap.setup.request import SetupRequest
from bootstrap.setup.result import SetupResult
from bootstrap.setup.sequence import run_setup
from bootstrap.ui.screen import Reporter

_COMMIT_OPTIONS = ("--quiet", "--no-verify", "--no-gpg-sign")
_COMMITTER = ("-c", "user.name=boxstrap demo", "-c", "user.email=demo@example.org")


def run_demo(reporter: Reporter) -> SetupResult:
    """Run a real setup on this machine. Raises what a setup raises."""
    _ignore_git_settings()
    folder = state_dir() / "demo"
    repository = _repository(folder / "repository")
    reporter.note("demo", f"everything is in {folder}; delete it when you like")
    request = SetupRequest(
        host=LOCAL,
        profile="demo",
        sets=(f"box.workdir={folder / 'box'}",),
        repo=repository,
        restart=True,
    )
    return run_setup(request, reporter)


def _ignore_git_settings() -> None:
    """Ignore the user's git settings (signing, templates, another repository), also on the box."""
    for name in [name for name in os.environ if name.startswith(("GIT_", "BASH_ENV"))]:
        del os.environ[name]
    os.environ.update(GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1")


def _repository(folder: Path) -> Path:
    """Make a git repository with the demo's training, or keep it: the commit stays the same."""
    shutil.copytree(shipped("templates") / "demo", folder, dirs_exist_ok=True)
    own = Folders(folder / ".git", folder)
    try:
        if not own.git_dir.is_dir():
            run_git(own, "init", "--quiet", "--template=", "--initial-branch=main")
        run_git(own, "add", "--all")
        if run_git(own, "status", "--porcelain"):
            run_git(own, *_COMMITTER, "commit", *_COMMIT_OPTIONS, "-m", "Fit a straight line")
    except GitError as failure:
        raise git_error(folder, failure) from failure
    return folder
