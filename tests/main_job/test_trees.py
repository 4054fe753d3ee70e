"""Folders on the box that boxstrap did not make: left alone, unless the user has them adopted."""

import copy
from pathlib import Path

import pytest

from tests.cli import OWN_MACHINE, User, UserRepository
from tests.faults.plugin import Faults
from tests.main_job.rented import Rented
from tests.programs import captured
from tests.used_here import seem_set_up

pytestmark = pytest.mark.sampled(of="module")

PROFILE = OWN_MACHINE + "train: {command: python train.py}\n"
URL = "https://example.org/me/homework.git"


def test_setup_never_deletes_a_users_folder_beside_its_tree(rented: Rented, faults: Faults) -> None:
    repository = rented.user.repository("ml")
    rented.as_user("mkdir -p /workspace/ml.tmp.backup && echo mine >/workspace/ml.tmp.backup/model")
    rented.run("setup").must(0)
    rented.as_user(f"rm -rf {rented.tree}")
    repository.commit({"train.py": "print('step 9')\n"})
    with faults.attempt("a folder named like our own rubbish", "repo") as attempt:
        rented.run("setup").must(0)
        assert rented.box.read("/workspace/ml.tmp.backup/model") == "mine\n"
        attempt.outcome("left alone")


@pytest.fixture
def cloned(user: User) -> UserRepository:
    """The user's own clone in the working folder, with remotes, branches and an identity."""
    repository = seem_set_up(user).repository(boxstrap__yaml=PROFILE)
    own = user.home / "work" / "homework"
    repository.git("clone", "-q", str(repository.root), str(own))
    clone = _of(repository, own)
    clone.git("remote", "add", "upstream", "https://example.org/them/homework.git")
    clone.git("branch", "other")
    clone.git("config", "user.name", "Me Myself")
    clone.git("config", "user.email", "me@example.org")
    return clone


def told(clone: UserRepository) -> str:
    """The clone's remotes, remote branches and upstreams."""
    return clone.git("config", "--get-regexp", r"^(remote|branch)\.") + clone.git(
        "for-each-ref", "refs/remotes", "refs/heads/other"
    )


def test_setup_refuses_a_users_own_clone_in_the_trees_place_and_changes_nothing(
    user: User, cloned: UserRepository, faults: Faults
) -> None:
    before = told(cloned), cloned.head, cloned.git("status", "--porcelain", "--ignored")
    with faults.attempt("a clone of one's own in the tree's place", "repo") as attempt:
        refused = user.run("setup", "--host", "local").must(7)
        assert "boxstrap did not make" in refused.err
        assert "--adopt" in refused.err
        assert (told(cloned), cloned.head) == before[:2]
        assert cloned.git("status", "--porcelain", "--ignored") == before[2]
        attempt.outcome("exit 7, nothing changed")
    # Neither a new commit nor a second try makes it boxstrap's.
    _of(cloned, user.place).commit({"train.py": "print('step 9')\n"})
    user.run("setup", "--host", "local").must(7)
    assert (told(cloned), cloned.head) == before[:2]


def test_setup_with_adopt_keeps_remotes_and_branches_of_the_users_clone(
    user: User, cloned: UserRepository
) -> None:
    source = _of(cloned, user.place)
    source.git("remote", "add", "origin", URL)
    before = told(cloned)
    user.run("setup", "--host", "local", "--adopt").must(0)
    assert told(cloned) == before
    # From then on it is one of boxstrap's trees, and still keeps them.
    commit = source.commit({"train.py": "print('step 9')\n"})
    assert "step 9" in user.run("setup", "--host", "local").must(0).out
    assert (told(cloned), cloned.head) == (before, commit)


def test_setup_with_adopt_is_refused_where_the_clone_has_edits_or_commits_of_its_own(
    user: User, cloned: UserRepository
) -> None:
    source = _of(cloned, user.place)
    source.commit({"train.py": "print('step 9')\n"})
    (cloned.root / "train.py").write_text("print('mine')")
    refused = user.run("setup", "--host", "local", "--adopt").must(7)
    assert "edited on the box" in refused.err
    assert (cloned.root / "train.py").read_text() == "print('mine')"
    own = cloned.commit({"train.py": "print('mine')\n"})
    user.run("setup", "--host", "local", "--adopt").must(7)
    assert cloned.head == own


def test_setup_does_not_remove_a_git_remote_on_the_box_that_was_removed_here(user: User) -> None:
    repository = seem_set_up(user).repository(boxstrap__yaml=PROFILE)
    repository.git("remote", "add", "origin", URL)
    user.run("setup", "--host", "local").must(0)
    repository.git("remote", "remove", "origin")
    repository.commit({"train.py": "print('step 9')\n"})
    user.run("setup", "--host", "local").must(0)
    assert _of(repository, user.home / "work/homework").git("remote", "get-url", "origin") == URL


def test_setup_refuses_a_folder_in_the_trees_place_that_is_no_repository(user: User) -> None:
    user.repository(boxstrap__yaml=PROFILE)
    mine = user.home / "work/homework/thesis.tex"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine\n")
    for also in ([], ["--adopt"]):
        refused = user.run("setup", "--host", "local", *also).must(7)
        assert "is not a git repository" in refused.err
        assert [path.name for path in mine.parent.iterdir()] == ["thesis.tex"]


def _of(like: UserRepository, root: Path) -> UserRepository:
    other = copy.copy(like)
    other.root = root
    return other


def test_shell_templates_use_rm_with_a_glob_only_in_boxstraps_folders() -> None:
    """Every `rm` with a `*` names a path in one of boxstrap's folders."""
    shipped = Path(__file__).resolve().parents[2] / "templates"
    found = captured(["grep", "-rnE", r"\brm\b.*\*", str(shipped)], check=False)
    ours = ("$BOX_HOME", "$REPO_STORE", "$box_home", '"$tmp"/.git/objects/pack/*.keep')
    lines = [line.split(":", 2)[2] for line in found.stdout.splitlines()]
    assert lines
    assert [line for line in lines if not any(place in line for place in ours)] == []
