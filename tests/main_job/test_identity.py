"""Which repository is meant, and which folder on the box is its own."""

import shutil
from pathlib import Path

import pytest

from tests.cli import LONG, User
from tests.main_job.rented import Rented

pytestmark = pytest.mark.sampled(of="module")

URL = "https://example.org/me/homework.git"


def head(rented: Rented, tree: str) -> str:
    return rented.as_user(f"git -C {tree} rev-parse HEAD").strip()


def folders(rented: Rented) -> list[str]:
    """The repositories' folders on the box."""
    return sorted(rented.as_user(f"cd {rented.folder}/.. && ls -d */").split())


def nothing_new(rented: Rented, tree: str, commit: str) -> None:
    """Assert that the one training continues in its tree, which is unchanged."""
    assert (rented.runs(), rented.trainings()) == (["train-1"], 1)
    assert head(rented, tree) == commit
    assert folders(rented) == [f"{Path(tree).name}/"]


def test_setup_from_another_clone_worktree_or_user_shows_the_live_run_and_starts_no_second(
    rented: Rented,
) -> None:
    user = rented.user
    repository = user.repository(boxstrap__yaml=LONG)
    repository.git("remote", "add", "origin", URL)
    rented.run("setup").must(0)
    tree, first = rented.tree, repository.head
    second = user.home / "second"
    repository.git("clone", "-q", str(repository.root), str(second))
    repository.git("-C", str(second), "remote", "set-url", "origin", URL)
    worktree = user.home / "beside"
    repository.git("worktree", "add", "-q", str(worktree))
    for place in (second, worktree):
        user.place = place
        assert "train-1: running" in rented.run("setup").must(0).out
        nothing_new(rented, tree, first)
    other = User(user.home.parent / "other")
    shutil.copytree(repository.root, other.home / "mine", symlinks=True)
    repository.git("-C", str(other.home / "mine"), "remote", "remove", "origin")
    other.place = other.home / "mine"
    assert "train-1: running" in Rented(other, rented.box).run("setup").must(0).out
    nothing_new(rented, tree, first)


def test_another_repository_of_the_same_name_gets_its_own_folder_on_the_box(rented: Rented) -> None:
    user = rented.user
    one = user.repository("algebra/homework", boxstrap__yaml=LONG)
    rented.run("setup").must(0)
    tree, first = rented.tree, one.head
    inside = f"cd {tree} && git status --porcelain && stat -c '%n %i %Y' train.py .venv/pyvenv.cfg"
    before = rented.as_user(inside)
    two = user.repository("geometry/homework", train__py="print('step 9')\n")
    set_up = rented.run("setup").must(0)
    assert "step 9" in set_up.out
    (own,) = set(folders(rented)) - {"homework/"}
    own = own.rstrip("/")
    assert own.startswith("homework-")
    assert len(own) == len("homework-ab12")
    assert own in set_up.text
    assert rented.as_user(inside) == before
    assert (head(rented, tree), head(rented, f"{tree}/../{own}")) == (first, two.head)
    assert rented.trainings() == 1
    # It is reported only once.
    again = rented.run("setup").must(0)
    assert "nothing to do" in again.out
    assert "another repository" in set_up.text
    assert "another repository" not in again.text
    document = rented.run("setup", "--json").must(0).json()
    assert document["repo_dir"] == str(Path(tree).with_name(own))


def test_a_repository_finds_its_tree_after_the_boxstrap_folder_was_deleted(rented: Rented) -> None:
    user = rented.user
    one = user.repository("algebra/homework")
    rented.run("setup").must(0)
    tree = rented.tree
    rented.as_user(f"rm -rf {rented.folder}")
    two = user.repository("geometry/homework")
    rented.run("setup").must(0)
    (own,) = {each.rstrip("/") for each in folders(rented)} - {"homework"}
    trees = (tree, str(Path(tree).with_name(own)))
    assert [head(rented, each) for each in trees] == [one.head, two.head]
    user.place = one.root
    commit = one.commit({"train.py": "print('step 9')\n"})
    assert "step 9" in rented.run("setup").must(0).out
    assert [head(rented, each) for each in trees] == [commit, two.head]
