"""The step that waits for a setup's commit: how long, and of which repository of the box."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.step_report import StepError
from bootstrap.onbox.steps import repo
from bootstrap.onbox.steps.repo import RepoStep
from bootstrap.onbox.work.repository import find_repository
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


ROOT, ANOTHER_FIRST = "a" * 40, "b" * 40


def note(home: Path, of: str, **notes: str) -> None:
    (home / "steps" / of).mkdir(parents=True)
    for name, text in notes.items():
        (home / "steps" / of / f"repo.{name}").write_text(f"{text}\n")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (("homework-1", ROOT), ("homework-1", "hw")),
        (("fork-2", ROOT), ("homework-1", "hw")),  # another client's name for it
        (("named-3", ""), ("homework-1", "hw")),
        (("homework-1", ANOTHER_FIRST), (f"homework-{'b' * 8}", "homework")),
        (("hw-4", ANOTHER_FIRST), ("hw-4", "hw-4")),  # its usual folder has another one
        (("hw-4", ""), ("hw-4", "hw-4")),
        (("new-5", ANOTHER_FIRST), ("new-5", "new")),
    ],
)
def test_a_repository_is_found_on_a_box_by_its_first_commit_and_has_a_folder_of_its_own(
    asked: tuple[str, str], found: tuple[str, str], tmp_path: Path
) -> None:
    home = tmp_path / ".boxstrap"
    note(home, "homework-1", root=ROOT, dir=f"{tmp_path}/hw")
    note(home, "named-3", key="homework-1")
    key, folder = find_repository(str(home), *asked, "")
    assert (key, folder) == (found[0], f"{tmp_path}/{found[1]}")
