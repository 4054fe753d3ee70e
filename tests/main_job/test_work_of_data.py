"""Data that changes: what was made of it is made again, and other data is other work."""

import os
from pathlib import Path

import pytest

from tests.cli import Completed, User
from tests.used_here import seem_set_up

pytestmark = pytest.mark.sampled(of="module")

PROFILE = """\
version: 1
extends: local
box: {workdir: ~/box}
"""
DATA = "data: [{from: sets, to: data/sets}]\n"
PREPARE = "prepare: [python data/make.py]\n"
TRAINS = "train: {command: python train.py, results: [data/out/]}\n"
MAKE = """\
import glob, os
os.makedirs("data", exist_ok=True)
found = [open(p).read() for p in sorted(glob.glob("data/**/*.txt", recursive=True))]
open("data/made.bin", "w").write(" ".join(found))
open("made.count", "a").write("x")
"""
TRAIN = """\
import os, sys, time
os.makedirs("data/out", exist_ok=True)
open("data/out/model", "a").write("x")
print("step 1 of", open(sys.argv[1] if sys.argv[1:] else "data/made.bin").read(), flush=True)
"""
TO_LOCAL = ("--host", "local")


class Here:
    """A user whose box is this machine."""

    def __init__(self, user: User, profile: str, train: str = TRAIN) -> None:
        self.user = seem_set_up(user, "box")
        self.repository = user.repository(boxstrap__yaml=PROFILE + profile, train__py=train)
        self.repository.commit({"data/make.py": MAKE, ".gitignore": "*.txt\n*.bin\nsets/\nout/\n"})
        self.tree = user.home / "box" / self.repository.root.name
        self.sets = self.repository.root / "sets"
        self.sets.mkdir()
        self.consent = ""

    def setup(self, *more: str, rc: int = 0) -> Completed:
        consent = ["--consent", self.consent] if self.consent else []
        done = self.user.run("setup", *TO_LOCAL, *consent, *more)
        if done.rc == 2 and "--consent " in done.err and not self.consent:
            self.consent = done.err.split("--consent ")[1].split()[0]
            return self.setup(*more, rc=rc)
        return done.must(rc)

    def runs(self) -> int:
        return len(list((self.user.home / "box/.boxstrap/runs").glob("*/*/")))

    def made(self) -> int:
        return len((self.tree / "made.count").read_text())

    def write(self, name: str, text: str, folder: Path | None = None) -> None:
        file = (folder or self.sets) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_setup_trains_on_changed_data_but_not_again_once_data_is_as_it_was_for_an_earlier_run(
    user: User,
) -> None:
    here = Here(user, DATA + PREPARE + TRAINS)
    here.write("a.txt", "one")
    assert "step 1 of one" in here.setup().out
    assert "nothing to do" in here.setup().out
    here.write("a.txt", "two")
    changed = here.setup()
    assert "prepare    start  its data changed" in changed.err
    assert "train      start  its data changed" in changed.err
    assert "step 1 of two" in changed.out
    assert (here.runs(), here.made()) == (2, 2)
    # The same content with another time is the same data: nothing is made or trained again.
    os.utime(here.sets / "a.txt", (1, 1))
    same = here.setup()
    assert "prepare    start" not in same.err
    assert (here.runs(), here.made()) == (2, 2)
    # The earlier data is the earlier work: told, and not trained again.
    here.write("a.txt", "one")
    earlier = here.setup()
    assert "train-1 finished" in earlier.out
    assert here.runs() == 2
    assert "nothing to do" in here.setup().out
    # While a run is alive its data stays, and other data is what differs.
    here.repository.commit({"train.py": TRAIN + "time.sleep(600)\n"})
    here.setup()
    try:
        here.write("a.txt", "three")
        busy = here.setup(rc=8)
        assert "train-3 is running" in busy.err
        assert "other data" in busy.err
        assert (here.tree / "data/sets/a.txt").read_text() == "one"
    finally:
        user.run("stop", *TO_LOCAL, "--all").must(0)
    assert "step 1 of three" in here.setup().out
    user.run("stop", *TO_LOCAL, "--all").must(0)


def test_setup_trains_again_when_data_was_corrected_after_a_failed_run(user: User) -> None:
    here = Here(user, DATA + "train: {command: cat data/sets/b.txt}\n")
    here.write("a.txt", "one")
    here.setup(rc=10)
    assert here.runs() == 1
    here.setup(rc=10)
    here.write("b.txt", "right")
    assert "right" in here.setup().out
    assert here.runs() == 2
    (here.sets / "b.txt").unlink()
    assert "b.txt: sent before, and no longer in it here" in here.setup().err


def test_setup_trains_again_after_a_failed_run_once_the_profile_names_data(user: User) -> None:
    command = "train: {command: 'cat data/sets/a.txt || exit 3'}\n"
    here = Here(user, command)
    here.write("a.txt", "step 1")
    here.setup(rc=10)
    (here.repository.root / "boxstrap.yaml").write_text(PROFILE + DATA + command)
    assert "step 1" in here.setup().out
    assert here.runs() == 2


def test_prepare_runs_again_when_pushed_or_shared_data_changed(user: User) -> None:
    here = Here(user, "shared: [data/raw]\n" + PREPARE + TRAINS)
    here.write("corpus.txt", "one")
    here.setup()
    push = ("push", *TO_LOCAL, "sets", "--to", "data/pushed")
    user.run(*push).must(0)
    assert "prepare    start  its data changed" in here.setup("--restart").err
    assert (here.tree / "data/made.bin").read_text() == "one"
    assert here.made() == 2
    # A training of the same writes into the shared folder and beside it: that is not what was read.
    here.setup("--restart")
    assert here.made() == 2
    here.write("corpus.txt", "two")
    user.run(*push, "--replace").must(0)
    assert "prepare    start  its data changed" in here.setup("--restart").err
    assert (here.tree / "data/made.bin").read_text() == "two"
    # What is shared counts by size and time, also if it came by another way.
    here.write("a.txt", "raw", here.tree / "data/raw")
    here.setup("--redo", "prepare")
    assert (here.tree / "data/made.bin").read_text() == "two raw"
    here.setup()
    assert here.made() == 4
    here.write("a.txt", "other", here.tree / "data/raw")
    assert "prepare    start  its data changed" in here.setup().err
    assert (here.tree / "data/made.bin").read_text() == "two other"
    # What is pushed is no part of the work: only --restart trains again.
    assert here.runs() == 4


def test_setup_with_redo_prepare_runs_prepare_again_but_is_refused_during_a_run(user: User) -> None:
    here = Here(user, PREPARE + "train: {command: python train.py}\n")
    here.setup()
    again = here.setup("--redo", "prepare")
    assert "prepare    start  asked for now" in again.err
    assert (here.made(), here.runs()) == (2, 1)
    assert "--restart" in here.setup("--redo", "train", rc=2).err
    assert "prepare" in here.setup("--redo", "nine", rc=2).err
    assert "asks for nothing there" in here.setup("--redo", "data", rc=2).err
    here.repository.commit({"train.py": "import time\nprint(1, flush=True)\ntime.sleep(600)\n"})
    here.setup()
    try:
        assert "train-2 is running" in here.setup("--redo", "prepare", rc=8).err
        here.setup("--redo", "prepare", "--restart")
        assert (here.made(), here.runs()) == (3, 3)
    finally:
        user.run("stop", *TO_LOCAL, "--all").must(0)


def test_run_with_beside_uses_changed_data_of_this_machine_in_its_own_tree_only(user: User) -> None:
    """The links to what the main tree was sent were taken for somebody else's files."""
    here = Here(user, DATA + "train: {command: cat data/sets/a.txt}\n")
    here.write("a.txt", "one")
    here.setup()
    for text, is_linked in (("one", True), ("another", False)):
        if not is_linked:
            here.write("a.txt", text)
        ran = user.run("run", *TO_LOCAL, "--beside", "--json").must(0).json()
        assert ran["first_lines"] == [text]
        assert (Path(ran["tree"]) / "data/sets/a.txt").is_symlink() == is_linked
    assert (here.tree / "data/sets/a.txt").read_text() == "one"
