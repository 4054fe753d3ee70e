"""A repository of another user is refused, also one in a folder above."""

from __future__ import annotations

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


def test_a_path_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_strangers_repository_is_refused(repo: SampleRepository) -> None:
    give(repo.root)
    with pytest.raises(UsageError, match="belongs to another user") as caught:
        read_repository(repo.root)
    assert f"safe.directory {repo.root}" in caught.value.hint


def test_a_repository_that_a_stranger_put_above_is_refused(repo: SampleRepository) -> None:
    """For example in a shared folder that everybody may write to."""
    mine = repo.root / "mine"
    mine.mkdir()
    give(repo.root / ".git")
    with pytest.raises(UsageError, match="belongs to another user"):
        read_repository(mine)


def test_a_file_that_leads_to_a_strangers_folder(repo: SampleRepository, tmp_path: Path) -> None:
    give(repo.root / ".git")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ".git").write_text(f"gitdir: {repo.root / '.git'}\n")
    with pytest.raises(UsageError, match="belongs to another user"):
        read_repository(tmp_path / "mine")


def test_nothing_of_it_is_read(repo: SampleRepository) -> None:
    (repo.root / ".git" / "config").write_text("this is no configuration\n[")
    give(repo.root)
    with pytest.raises(UsageError, match="belongs to another user"):
        read_repository(repo.root)


def test_who_called_sudo_is_the_same_person(
    repo: SampleRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(repo.root)
    monkeypatch.setenv("SUDO_UID", str(STRANGER))
    assert read_repository(repo.root).root == repo.root


@pytest.mark.parametrize(
    ("values", "trusted"),
    [
        (["{root}"], True),
        (["{root}/"], True),
        (["*"], True),
        (["~/homework"], False),
        (["{above}/*"], True),
        (["{above}"], False),
        (["{root}x"], False),
        (["*", ""], False),
        (["", "{root}"], True),
    ],
)
def test_the_persons_own_word_counts(
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


def test_the_repositorys_own_word_does_not(
    repo: SampleRepository, new: Callable[..., SampleRepository], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new("other")
    other.git("config", "safe.directory", "*")
    repo.git("config", "safe.directory", "*")
    give(repo.root)
    monkeypatch.chdir(other.root)
    with pytest.raises(UsageError, match="belongs to another user"):
        read_repository(repo.root)
