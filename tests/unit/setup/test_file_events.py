"""Which file changes cause a sync: not git's own files, and not ignored ones."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.repo.local import read_repository
from bootstrap.setup.watch import may_travel
from tests.unit.repo.conftest import home, new, repo
from tests.unit.repo.repositories import SampleRepository

__all__ = ["home", "new", "repo"]

CAUSES = ("train.py", "a new file", "deep/er/file", b"\xff.py", ".git/HEAD")
CAUSES += (".git/refs/heads/try/one", ".git/packed-refs", "kept.log")  # ignored, and tracked
NONE = ("noise.log", "out/model.bin", "deep/out/model.bin", ".git/index", ".git/objects/12/34")
CHANGES = {**dict.fromkeys(CAUSES, True), **dict.fromkeys((*NONE, "deep/.git/HEAD"), False)}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_sync_watch_starts_a_sync_at_changed_files_and_commits_but_not_at_ignored_files(
    repo: SampleRepository, name: str | bytes
) -> None:
    repo.commit(kept="x\n")
    repo.write("kept.log", "kept\n")
    repo.git("add", "-A")
    repo.write(".gitignore", "*.log\nout/\n")
    here = read_repository(repo.root)
    assert may_travel(here, [repo.root / os.fsdecode(name)]) is CHANGES[name]
    assert may_travel(here, [repo.root / "out/x", repo.root / os.fsdecode(name)]) is CHANGES[name]


def test_sync_watch_of_a_worktree_starts_a_sync_at_a_commit_on_its_own_branch(
    repo: SampleRepository, tmp_path: Path, new: Callable[..., SampleRepository]
) -> None:
    repo.git("worktree", "add", "-q", "-b", "other", str(tmp_path / "tree"))
    here = read_repository(tmp_path / "tree")
    assert may_travel(here, [repo.root / ".git/worktrees/tree/HEAD"])
    assert may_travel(here, [repo.root / ".git/refs/heads/other"])
    assert not may_travel(here, [repo.root / ".git/worktrees/tree/index"])
