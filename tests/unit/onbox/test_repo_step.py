"""The step that waits for a setup's commit: what it depends on, and for how long it waits."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.step_report import StepError
from bootstrap.onbox.steps import repo
from bootstrap.onbox.steps.repo import RepoStep
from bootstrap.steps.shell import Value
from tests.unit.repo.repositories import SampleRepository
from tests.unit.setup.scripts import facts

COMMIT, OTHER = "a" * 40, "b" * 40


def repo_step(home: Path, **own: Value) -> RepoStep:
    asked, tree = {"setup": f"{home}/setups/1", "main": f"{home}/k"}, f"{home}/k"
    own = {"repo_commit": COMMIT, "repo_snapshot": COMMIT} | own
    return RepoStep(facts(BoxTree(str(home), "k", tree), asked=asked, **own))


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ({"repo_snapshot": OTHER}, "snapshot"),
        ({"repo_commit": OTHER, "repo_snapshot": OTHER}, "commit"),
        ({"repo_url": "https://example.org/k"}, "changed"),
        ({"repo_tags": ["1 2 v1"]}, "changed"),
    ],
)
def test_the_repo_step_says_commit_or_snapshot_only_if_nothing_else_changed(
    before: dict[str, Value], why: str, tmp_path: Path
) -> None:
    repo_step(tmp_path, **before).note_success()
    assert repo_step(tmp_path).why() == why


def test_setup_waits_for_a_commit_until_it_came_or_nobody_can_send_it_or_git_refused_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, store = SampleRepository(tmp_path / "k"), tmp_path / "store/k.git"
    source.root.mkdir()
    source.git("init", "-q", "-b", "main")
    source.git("config", "user.name", "a")
    source.git("config", "user.email", "a@example.org")
    commit = source.commit(a="1")
    source.git("init", "-q", "--bare", str(store))
    folder, refused = tmp_path / "setups/1", tmp_path / "store/k.git.refused"
    folder.mkdir(parents=True)
    (folder / "pid").touch()

    def wait(meanwhile: Callable[[], object] = lambda: pytest.fail("it waits")) -> str:
        """Return how the wait ends, in which something happens; "" if the commit came."""
        monkeypatch.setattr(repo, "sleep", lambda _: meanwhile())
        try:
            repo_step(tmp_path, repo_commit=commit, repo_snapshot=commit)._await_commit()
        except StepError as error:
            return " ".join([error.code, *error.sentences[1:]])
        return ""

    assert wait() == "commit-missing", "this machine sends nothing"
    monkeypatch.setenv("CLIENT_SENDS", "yes")
    refused.write_text("disk-full\n")
    assert wait() == "disk-full"
    os.utime(refused, (0, 0))
    assert wait((folder / "commit.refused").touch) == "commit-missing", "not of this setup"
    (folder / "commit.refused").unlink()
    push = ("push", "-q", str(store), f"HEAD:refs/boxstrap/{commit}")
    assert wait(lambda: source.git(*push)) == ""
    (store / "objects" / commit[:2] / commit[2:]).unlink()
    assert wait((folder / "commit.refused").touch) == "commit-missing", "its objects are lost"
