"""A repository keeps its identity when its remote or its path changes."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.paths import state_dir
from bootstrap.repo import local
from bootstrap.repo.local import read_repository
from bootstrap.repo.place import Place
from tests.unit.repo.repositories import SampleRepository

New = Callable[..., SampleRepository]
URL = "https://example.org/me/x.git"


def test_adding_a_remote_does_not_change_the_id_of_a_repository(repo: SampleRepository) -> None:
    before = read_repository(repo.root)
    assert before.key == before.usual_key
    repo.git("remote", "add", "origin", URL)
    after = read_repository(repo.root)
    assert (after.key, after.root_commit) == (before.key, before.root_commit)
    assert after.usual_key != before.key


def test_of_two_merged_histories_the_root_commit_is_that_of_the_main_branch(
    repo: SampleRepository,
) -> None:
    first = repo.git("rev-parse", "HEAD")
    repo.git("checkout", "-q", "--orphan", "pages")
    repo.commit("Pages")
    repo.git("checkout", "-q", "main")
    repo.git("merge", "-q", "--allow-unrelated-histories", "-m", "Join", "pages")
    assert read_repository(repo.root).root_commit == first


def test_two_copies_of_one_clone_have_different_identities(
    repo: SampleRepository, tmp_path: Path
) -> None:
    repo.git("remote", "add", "origin", URL)
    copy = Path(shutil.copytree(repo.root, tmp_path / "copy", symlinks=True))
    keys = read_repository(repo.root).key, read_repository(copy).key
    assert keys[0] != keys[1]
    assert read_repository(repo.root).root_commit == read_repository(copy).root_commit
    assert (read_repository(repo.root).key, read_repository(copy).key) == keys


def test_worktrees_of_one_repository_have_the_same_identity(
    repo: SampleRepository, tmp_path: Path
) -> None:
    repo.git("worktree", "add", "-q", str(tmp_path / "beside"))
    assert read_repository(tmp_path / "beside").key == read_repository(repo.root).key


def test_a_new_repository_in_the_same_folder_gets_another_identity(
    repo: SampleRepository, new: New
) -> None:
    """Repeated, because the file system may reuse inode numbers."""
    key = read_repository(repo.root).key
    keys = {key}
    for number in range(1, 4):
        shutil.rmtree(repo.root)
        again = new("homework", "--template=")
        again.commit(f"Something else, {number}")
        other = read_repository(again.root)
        assert other.usual_key == key
        assert read_repository(again.root).key == other.key
        keys.add(other.key)
        assert len(keys) == number + 1


def test_a_repository_cloned_again_into_its_folder_has_the_same_id(
    repo: SampleRepository, tmp_path: Path
) -> None:
    before = read_repository(repo.root)
    old = repo.root.rename(tmp_path / "old")
    for how in ((), ("--depth=1",)):
        shutil.rmtree(repo.root, ignore_errors=True)
        subprocess.run(["git", "clone", "-q", *how, f"file://{old}", repo.root], check=True)
        assert (read_repository(repo.root).key, read_repository(repo.root).root_commit) == (
            before.key,
            before.root_commit,
        )


def test_a_moved_repository_has_the_same_id_though_a_new_one_is_in_its_old_folder(
    repo: SampleRepository, new: New, tmp_path: Path
) -> None:
    key = read_repository(repo.root).key
    moved = repo.root.rename(tmp_path / "elsewhere")
    again = new()
    again.commit("Something else")
    assert read_repository(again.root).key != key
    assert read_repository(moved).key == key


def test_fetching_the_missing_history_of_a_shallow_clone_does_not_change_its_id(
    repo: SampleRepository, tmp_path: Path
) -> None:
    repo.commit("More")
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{repo.root}", shallow], check=True)
    before = read_repository(shallow)
    assert before.root_commit == ""
    subprocess.run(["git", "-C", shallow, "fetch", "-q", "--unshallow"], check=True)
    after = read_repository(shallow)
    assert after.key == before.key
    assert after.root_commit == read_repository(repo.root).root_commit


def test_a_local_mirror_with_the_same_git_files_leaves_the_id_of_a_repository_unchanged(
    repo: SampleRepository, tmp_path: Path
) -> None:
    repo.git("remote", "add", "origin", URL)
    mirror = state_dir() / "mirrors" / "x.git"
    mirror.parent.mkdir(parents=True)
    shutil.copytree(repo.root / ".git", mirror)
    subprocess.run(["git", "-C", mirror, "config", "core.bare", "true"], check=True)
    assert (
        read_repository(mirror).key
        == read_repository(repo.root).key
        == read_repository(repo.root).usual_key
    )


def test_a_known_repository_is_identified_without_running_git(
    repo: SampleRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = read_repository(repo.root)
    monkeypatch.setattr(local.git, "run_git", None)
    found = local.identify(here.folders, here.git_dir, "other-00000000", shallow=False)
    assert (found.id, found.root) == (here.key, here.root_commit)
    assert local.current(repo.root) == (here.key, here.root_commit)


def test_a_repository_in_another_users_folder_is_called_unread_and_git_not_run(
    repo: SampleRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_repository(repo.root)
    monkeypatch.setattr(Place, "strangers", lambda place: [place.root])
    monkeypatch.setattr(local, "is_trusted", lambda _: False)
    assert local.current(repo.root) == (f"{repo.root.name}-unread", "")


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"id": 3}', '{"id": "x"}', "\0"])
def test_a_repository_with_a_damaged_record_here_still_has_the_same_id(
    repo: SampleRepository, broken: str
) -> None:
    before = read_repository(repo.root)
    (record,) = (state_dir() / "repositories").iterdir()
    record.write_text(broken)
    assert read_repository(repo.root).key == before.key
    assert read_repository(repo.root).root_commit == before.root_commit


def test_a_repository_is_still_identified_where_the_state_folder_can_not_be_written(
    repo: SampleRepository, home: Path
) -> None:
    (home / ".local").write_text("a file")
    here = read_repository(repo.root)
    assert here.key == here.usual_key
    assert here.root_commit
