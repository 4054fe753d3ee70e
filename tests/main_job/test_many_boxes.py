"""Two repositories and three boxes, many to many: no command reaches another repository's box."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.cli import Completed, User, UserRepository
from tests.main_job.rented import Rented
from tests.main_job.used import start_used

pytestmark = pytest.mark.boxes

TRAIN = "import time\nprint('{} begins', flush=True)\ntime.sleep(600)\n"


@dataclass
class Three:
    """Boxes a, b and c of one user, who stands in one of three repositories."""

    user: User
    boxes: dict[str, Rented]
    repositories: dict[str, UserRepository]

    def typed(self, place: str, *words: str) -> Completed:
        """Type a command without a host."""
        self.user.place = self.repositories[place].root
        return self.user.run(*words)

    def setup(self, place: str, box: str) -> None:
        self.user.place = self.repositories[place].root
        self.boxes[box].run("setup", "--name", box).must(0)

    def alive(self, box: str) -> list[str]:
        """The repositories of the runs that are alive there."""
        runs = self.boxes[box].status()["runs"]
        return sorted(run["repository"] for run in runs if run["state"] == "running")


@pytest.fixture(scope="module")
def three(
    mirror_rig: Rig, shared_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Three]:
    user = User(tmp_path_factory.mktemp("many") / "home")
    boxes = {name: Rented(user, start_used(mirror_rig, "vast", shared_folder)) for name in "abc"}
    repositories = {
        name: user.repository(name, train__py=TRAIN.format(name)) for name in ("mine", "theirs")
    }
    repositories["new"] = user.repository("new")
    yield Three(user, boxes, repositories)
    for rented in boxes.values():
        rented.box.stop()


def test_a_repository_without_a_box_reaches_none(three: Three) -> None:
    three.setup("theirs", "a")
    tree = three.boxes["a"].box.listing(["/workspace/theirs"])
    (seen,) = (box["seen"] for box in three.typed("new", "boxes", "--json").json()["boxes"])
    for words in (
        ("down", "--discard"), ("down", "--stop-runs"), ("stop",), ("stop", "--all"), ("clean",),
        ("exec", "--", "touch", "was-here"), ("run", "--", "true"), ("push", "train.py"),
        ("sync",), ("logs",), ("pull",), ("setup",),
    ):  # fmt: skip
        refused = three.typed("new", *words).must(2)
        assert "which box? new has none; known here:\n  a  " in refused.err
    assert three.boxes["a"].box.listing(["/workspace/theirs"]) == tree
    (again,) = (box["seen"] for box in three.typed("new", "boxes", "--json").json()["boxes"])
    assert again == seen  # nobody logged in
    assert three.alive("a") == ["theirs"]


def test_setting_up_a_second_repository_does_not_take_the_box_from_the_first(three: Three) -> None:
    three.setup("mine", "a")
    three.setup("mine", "b")
    for place in ("mine", "theirs"):
        done = three.typed(place, "boxes", "--json").json()
        assert {box["name"]: len(box["repositories"]) for box in done["boxes"]} == {"a": 2, "b": 1}
    assert three.typed("theirs", "logs").must(0).out == "theirs begins\n"
    assert three.typed("theirs", "exec", "--", "pwd").must(0).out == "/workspace/theirs\n"
    three.repositories["theirs"].write({"data/set.txt": "1\n"})
    three.typed("theirs", "push", "data").must(0)
    assert three.boxes["a"].box.exists("/workspace/theirs/data/set.txt")
    assert not three.boxes["b"].box.exists("/workspace/theirs")
    begun = (
        three.typed("theirs", "run", "--json", "--session", "other", "--", "true").must(0).json()
    )
    assert begun["box"] == "a"
    for words in (("logs",), ("stop",), ("exec", "--", "pwd"), ("push", "train.py"), ("down",)):
        several = three.typed("mine", *words).must(2)
        assert "which box? mine has 2:\n  b  " in several.err
    assert three.alive("a") == ["mine", "theirs"]
    assert three.alive("b") == ["mine"]


def test_with_a_host_a_command_of_one_repository_does_not_enter_anothers_tree(three: Three) -> None:
    three.setup("theirs", "c")
    refused = three.typed("new", "exec", "--host", "c", "--", "touch", "was-here").must(2)
    assert "new was not set up on this box; of others it has theirs" in refused.err
    assert three.boxes["c"].box.run("find /workspace -name was-here") == ""


def test_stop_ends_the_run_of_this_repository_alone(three: Three) -> None:
    three.boxes["c"].user.place = three.repositories["theirs"].root
    assert "which box? theirs has 2:" in three.typed("theirs", "stop").must(2).err
    three.typed("theirs", "boxes", "--forget", "c").must(0)
    assert "stopped: train-1 of theirs" in three.typed("theirs", "stop").must(0).out
    assert three.alive("a") == ["mine"]


def test_down_names_whose_work_lies_there_before_it_does_anything(three: Three) -> None:
    refused = three.typed("theirs", "down").must(9)
    said, _, unsafe = refused.err.partition("this would be lost with it:")
    assert "mine (train-1 running)" in said
    assert "theirs" in said
    assert "mine/train-1" in unsafe
    assert three.alive("a") == ["mine"]


def test_a_moved_repository_with_another_remote_keeps_its_boxes(three: Three) -> None:
    theirs = three.repositories["theirs"]
    theirs.git("remote", "add", "origin", "https://example.org/me/renamed.git")
    theirs.git("worktree", "add", "-q", str(three.user.home / "worktree"))
    moved = theirs.root.rename(three.user.home / "elsewhere")
    theirs.root = moved
    theirs.git("worktree", "repair", str(three.user.home / "worktree"))
    for place in (moved, three.user.home / "worktree"):
        three.user.place = place
        assert "other-1 of theirs" in three.user.run("logs").must(0).err
    theirs.git("clone", "-q", str(moved), str(three.user.home / "clone"))
    three.user.place = three.user.home / "clone"
    assert "has none; known here" in three.user.run("logs").must(2).err
