"""What is known and refused before a box is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap.errors import ProfileError, UsageError
from bootstrap.profile.load import load
from bootstrap.setup.prepare import Prepared, prepare, repository_root
from tests.cli import HERE, User


def prepared(place: Path, *sets: str, **options: bool) -> Prepared:
    loaded = load("vast", sets=sets)
    return prepare(loaded, place, local=False, **options)


def test_a_clean_repository_is_its_commit(user: User) -> None:
    repository = user.repository()
    found = prepared(repository.root)
    assert found.commit == repository.head
    assert found.repo_name == "homework"
    assert found.here is not None
    assert f"REPO_COMMIT='{repository.head}'" in found.script


def test_boxstraps_own_checkout_is_no_training() -> None:
    with pytest.raises(UsageError, match="boxstrap's own source") as caught:
        prepared(HERE, committed_only=True)
    assert "--repo" in caught.value.hint


def test_boxstraps_own_checkout_may_be_chosen() -> None:
    assert prepared(HERE, committed_only=True, chosen_repo=True).repo_name


def test_a_copy_of_boxstrap_in_a_training_is_no_checkout_of_it(user: User) -> None:
    text = (HERE / "pyproject.toml").read_text()
    repository = user.repository(pyproject__toml=text.replace('"boxstrap"', '"homework"'))
    assert prepared(repository.root).commit == repository.head


def test_no_repository_is_2(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        prepared(tmp_path)
    assert prepared(tmp_path, with_work=False).commit == ""


def test_changes_stay_behind_only_when_that_is_said(user: User) -> None:
    repository = user.repository()
    repository.write({"train.py": "x", "new.py": "y"})
    with pytest.raises(UsageError) as caught:
        prepared(repository.root)
    assert "train.py" in caught.value.what
    assert "new.py" in caught.value.what
    assert prepared(repository.root, committed_only=True).commit == repository.head


def test_the_profile_itself_counts_as_present(user: User) -> None:
    repository = user.repository()
    (repository.root / "boxstrap.yaml").write_text("version: 1\ngpu: {require: false}\n")
    assert prepared(repository.root).commit == repository.head
    repository.git("rm", "-q", "--cached", "boxstrap.yaml")
    repository.git("commit", "-q", "-m", "Without a profile")
    assert prepared(repository.root).commit == repository.head
    (repository.root / "sub").mkdir()
    (repository.root / "sub/boxstrap.yaml").write_text("version: 1\n")
    with pytest.raises(UsageError, match=r"untracked +sub/\n"):
        prepared(repository.root)


def test_a_ref_is_another_commit_and_its_script_another(user: User) -> None:
    repository = user.repository()
    first = repository.head
    repository.git("tag", "v1")
    second = repository.commit({"a.txt": "a"})
    assert prepared(repository.root, "git.ref=v1").commit == first
    assert prepared(repository.root).commit == second
    assert prepared(repository.root).script_id != prepared(repository.root, "git.ref=v1").script_id


def test_access_by_url_without_an_address_is_a_wrong_profile(user: User) -> None:
    repository = user.repository()
    with pytest.raises(ProfileError, match="no remote"):
        prepared(repository.root, "git.access=url")


def test_the_same_work_gives_the_same_script(user: User) -> None:
    repository = user.repository()
    assert prepared(repository.root).script_id == prepared(repository.root).script_id


def test_only_steps_of_this_profile_are_in_it(user: User) -> None:
    repository = user.repository()
    assert [step.name for step in prepared(repository.root).steps][-2:] == ["python", "smoke"]
    for without in ("gpu.smoke=none", "gpu.require=false"):
        assert [step.name for step in prepared(repository.root, without).steps][-1] == "python"
    with_train = prepared(repository.root, "train.command=python train.py")
    assert [step.name for step in with_train.steps][-1] == "train"
    loaded = load("local", sets=("train.command=true",))
    local = prepare(loaded, repository.root, local=True)
    assert "ssh" not in [step.name for step in local.steps]


def test_the_root_is_found_from_below(user: User, tmp_path: Path) -> None:
    repository = user.repository()
    below = repository.root / "a/b"
    below.mkdir(parents=True)
    assert repository_root(below) == repository.root
    assert repository_root(tmp_path) is None
