"""Data in every tree of the repository: pushed into the main tree, or shared."""

from __future__ import annotations

import pytest

from tests.cli import User
from tests.main_job.test_work_of_data import PREPARE, TO_LOCAL, Here

pytestmark = pytest.mark.sampled(of="module")

LONG = """\
import glob, sys, time
names = sorted(glob.glob("data/**/*.[tb]*", recursive=True))
print("step 1", [open(name).read() for name in names], flush=True)
time.sleep(600)
"""
TRAINS = "train: {command: python train.py}\n"
SHORT = ("--", "python", "train.py", "now")


def test_what_was_pushed_is_in_each_tree_and_what_a_run_writes_beside_it_stays_its_own(
    user: User,
) -> None:
    here = Here(user, PREPARE + TRAINS, LONG)
    here.write("a é.txt", "one")
    here.setup()
    pushed = user.run("push", *TO_LOCAL, "sets", "--to", "data/sets").must(0)
    assert "shared: [data/sets/]" in pushed.out
    beside = here.tree.with_name(f"{here.tree.name}@2")
    try:
        here.repository.commit({"lib.py": "# other files\n"})
        said = user.run("run", *TO_LOCAL, *SHORT).must(0).out
        assert "one" in said
        link = beside / "data/sets/a é.txt"
        assert link.is_symlink()
        assert (beside / "data/made.bin").read_text() == "one"
        assert not (beside / "data/made.bin").is_symlink()
        assert (beside / "data/make.py").is_file()
        # What is pushed later is there for the next run of that tree.
        user.run("stop", *TO_LOCAL, "--run", "train-2").must(0)
        here.write("b.txt", "two")
        user.run("push", *TO_LOCAL, "sets", "--to", "data/sets").must(0)
        assert "'one', 'two'" in user.run("run", *TO_LOCAL, *SHORT).must(0).out
        assert (beside / "data/sets/b.txt").is_symlink()
    finally:
        user.run("stop", *TO_LOCAL, "--all").must(0)


def test_a_single_file_is_shared_beside_tracked_scripts(user: User) -> None:
    here = Here(user, "shared: [data/train.bin]\n" + TRAINS, LONG)
    here.setup()
    beside = here.tree.with_name(f"{here.tree.name}@2")
    try:
        (here.tree / "data/train.bin").write_text("tokens")
        (here.tree / "data/other.bin").write_text("no tokens")
        here.repository.commit({"lib.py": "# other files\n"})
        began = user.run("run", *TO_LOCAL, *SHORT).must(0)
        assert "['tokens']" in began.out
        assert "git ignores, and this run's own tree does not" in began.err
        assert (beside / "data/train.bin").readlink() == here.tree / "data/train.bin"
        assert not (beside / "data").is_symlink()
    finally:
        user.run("stop", *TO_LOCAL, "--all").must(0)


def test_what_can_not_be_shared_is_refused_before_anything_is_sent(user: User) -> None:
    here = Here(user, TRAINS, LONG)
    (here.repository.root / "data/train.bin").write_text("tokens")
    for shared, said in (
        ("data/", "data/make.py"),
        ("data/make.py", "data/make.py"),
        ("/data", "a path inside the repository"),
        ("../data", "leaves its folder"),
        (".git", ".git"),
    ):
        refused = user.run("setup", *TO_LOCAL, "--set", f"shared=[{shared}]").must(2)
        assert said in refused.err
        if shared == "data/":
            assert "shared: [data/train.bin]" in refused.err
    assert not (user.home / "box").exists()
