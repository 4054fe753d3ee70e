"""A repository of another user is refused, also one in a folder above."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.errors import UsageError
from bootstrap.paths import is_foreign_owned
from bootstrap.repo.local import read_repository
from tests.unit.repo.repositories import SampleRepository

pytestmark = pytest.mark.boxes  # only root may give a file away

STRANGER = 1234


def give(root: Path, owner: int = STRANGER) -> None:
    for folder, _, names in os.walk(root):
        for place in (folder, *(f"{folder}/{name}" for name in names)):
            os.lchown(place, owner, owner)


def test_a_file_counts_as_another_users_unless_the_owner_called_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert not is_foreign_owned(file)
    os.chown(file, STRANGER, -1)
    assert is_foreign_owned(file)
    (tmp_path / "link").symlink_to(file)
    assert not is_foreign_owned(tmp_path / "link")
    assert is_foreign_owned(tmp_path / "gone")
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    assert not is_foreign_owned(file)
    for odd in ("", "-1", "12x", "²"):
        monkeypatch.setenv("SUDO_UID", odd)
        assert is_foreign_owned(file)


def test_a_repository_that_another_user_put_in_a_parent_folder_is_refused(
    repo: SampleRepository,
) -> None:
    """For example in a shared folder that everybody may write to."""
    mine = repo.root / "mine"
    mine.mkdir()
    give(repo.root / ".git")
    with pytest.raises(UsageError, match="belongs to another user"):
        read_repository(mine)


def test_a_git_file_that_leads_to_another_users_git_folder_is_refused(
    repo: SampleRepository, tmp_path: Path
) -> None:
    give(repo.root / ".git")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ".git").write_text(f"gitdir: {repo.root / '.git'}\n")
    with pytest.raises(UsageError, match="belongs to another user"):
        read_repository(tmp_path / "mine")


def test_another_users_repository_is_refused_with_its_config_unread(repo: SampleRepository) -> None:
    (repo.root / ".git" / "config").write_text("this is no configuration\n[")
    give(repo.root)
    with pytest.raises(UsageError, match="belongs to another user") as caught:
        read_repository(repo.root)
    assert f"safe.directory {repo.root}" in caught.value.hint


def test_under_sudo_the_callers_own_repository_is_accepted(
    repo: SampleRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(repo.root)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    assert read_repository(repo.root).root == repo.root


@pytest.mark.parametrize(
    ("values", "trusted"),
    [
        *((["{root}"], True), (["{root}/"], True), (["*"], True), (["~/homework"], False)),
        *((["{above}/*"], True), (["{above}"], False), (["{root}x"], False), (["*", ""], False)),
        (["", "{root}"], True),
    ],
)
def test_a_safe_directory_in_the_users_git_config_allows_another_users_repository(
    repo: SampleRepository, values: list[str], trusted: bool
) -> None:
    give(repo.root)
    for value in values:
        given = value.format(root=repo.root, above=repo.root.parent)
        repo.git("config", "--global", "--add", "safe.directory", given)
    if trusted:
        assert read_repository(repo.root).root == repo.root
    else:
        with pytest.raises(UsageError, match="belongs to another user"):
            read_repository(repo.root)


def test_another_users_repository_is_refused_though_its_own_config_calls_it_safe(
    repo: SampleRepository, new: Callable[..., SampleRepository], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new("other")
    other.git("config", "safe.directory", "*")
    repo.git("config", "safe.directory", "*")
    give(repo.root)
    monkeypatch.chdir(other.root)
    with pytest.raises(UsageError, match="belongs to another user"):
        read_repository(repo.root)
