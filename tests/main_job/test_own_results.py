"""A run's results are its own: later runs in the same tree neither lose nor rename them.

The box is this machine. Each test has a user and a box of its own.
"""

import json
import re
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli import Completed, User
from tests.used_here import seem_set_up
from tests.waiting import slowness, wait_until

pytestmark = pytest.mark.sampled(of="module")

PROFILE = """\
version: 1
extends: local
box: {workdir: ~/work}
train: {command: python train.py first, results: [out/], resume: python train.py more}
"""
TRAIN = """\
import os, sys
from pathlib import Path

word = sys.argv[1]
out = Path("out")
print("saw", sorted(one.name for one in out.iterdir()), flush=True)
if word == "sample":
    print("of", (out / "ckpt").read_text(), flush=True)
    sys.exit()
(out / "ckpt").write_text(word)  # in place
(out / "renamed.new").write_text(word)
os.replace(out / "renamed.new", out / "renamed")
with (out / "log").open("a") as log:
    log.write(word + "\\n")
(out / word).write_text(word)
if word == "dies":
    os.kill(os.getppid(), 9)
    sys.exit(3)
"""


class Trainer:
    """A repository, the box that it trains on, and what came home."""

    def __init__(self, folder: Path) -> None:
        self.user = seem_set_up(User(folder / "home"))
        self.repository = self.user.repository(
            boxstrap__yaml=PROFILE, train__py=TRAIN, __gitignore="out/\nboxstrap-results/\n"
        )
        self.user.place = self.repository.root
        self.run("setup").must(0)
        self.over("train-1")

    def run(self, *words: str) -> Completed:
        return self.user.run(words[0], "--host", "local", *words[1:])

    def train(self, word: str, *options: str) -> str:
        """Run to the end; return its output."""
        done = self.run("run", *options, "--", f"python train.py {word}").must(0)
        return done.out

    def over(self, name: str) -> None:
        """Wait for a run's end, and for the record of what it made, a moment later."""
        self.run("wait", "--run", name)
        wait_until((self.folder(name) / "results.made").exists)

    def results(self) -> dict[str, Any]:
        """Return where the box has each run's results, as `status` says."""
        document = self.run("status", "--json").must(0).json()
        return {run["name"]: run["results"] for run in document["boxes"][0]["runs"]}

    @property
    def tree(self) -> Path:
        return self.user.home / "work" / self.repository.root.name

    def folder(self, name: str) -> Path:
        (found,) = self.user.home.glob(f"work/.boxstrap/runs/*/{name}")
        return found

    def home(self, name: str) -> dict[str, str]:
        """Return what came home of a run, by path below `out/`."""
        place = self.repository.root / "boxstrap-results/local" / name / "out"
        return {one.name: one.read_text() for one in place.iterdir()} if place.is_dir() else {}

    def manifest(self, name: str) -> dict[str, Any]:
        place = self.repository.root / "boxstrap-results/local" / name / "boxstrap-manifest.json"
        found: dict[str, Any] = json.loads(place.read_text())
        return found


FIRST = {"ckpt": "first", "renamed": "first", "log": "first\n", "first": "first"}
SECOND = {"ckpt": "second", "renamed": "second", "log": "first\nsecond\n", "second": "second"}


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    return Trainer(tmp_path)


def test_pull_brings_each_of_several_runs_in_one_tree_its_own_results(trainer: Trainer) -> None:
    said = trainer.train("second")
    assert "saw ['ckpt', 'first', 'log', 'renamed']" in said  # as `sample.py` needs it
    assert "of second" in trainer.train("sample")
    trainer.train("third")
    assert trainer.tree.with_name(f"{trainer.tree.name}@2").exists() is False
    where = trainer.results()
    assert [where[f"train-{number}"]["where"] for number in (1, 2, 3, 4)] == [
        "box",
        "box",
        "none",
        "box",
    ]
    assert where["train-1"]["kept_bytes"] == 21
    listed = trainer.user.run("runs", "--json").must(0).json()["runs"]
    assert [one["results"]["where"] for one in listed] == ["box", "none", "box", "box"]
    one = trainer.run("pull", "--run", "train-1").must(0)
    assert "4 files" in one.out
    assert trainer.home("train-1") == FIRST
    assert trainer.manifest("train-1")["complete"] is True
    trainer.run("pull", "train-1", "train-2").must(0)
    assert [trainer.home(f"train-{number}") for number in (2, 4)] == [SECOND, {}]
    unpulled = r"results of train-4, which are not at home: stay until a pull .* \(\d+"
    assert re.search(unpulled, trainer.run("clean", "--dry").must(0).out)
    rest = "not pulled yet: train-3; all of them: boxstrap pull --all --host local"
    assert rest in trainer.run("pull").must(0).err
    trainer.run("pull", "--all").must(0)
    assert "not pulled" not in trainer.run("pull").must(0).err
    assert [trainer.home(f"train-{number}") for number in (1, 2, 3, 4)] == [
        FIRST,
        SECOND,
        {},
        {"ckpt": "third", "renamed": "third", "log": "first\nsecond\nthird\n", "third": "third"},
    ]
    assert trainer.run("down", "--dry").must(0)
    assert list(trainer.folder("train-1").glob("results.kept/**/ckpt"))
    assert "results pulled" in trainer.run("status").must(0).out
    size = sum(len(text) for text in (*FIRST.values(), *SECOND.values()))
    would = f"copies of results that are at home: would be removed ({size} B)"
    assert would in trainer.run("clean", "--dry").must(0).out
    refused = trainer.run("clean").must(2)
    assert "results of train-4, which are at home: would be removed" in refused.err
    assert "clean --host local --yes" in refused.err
    assert (trainer.tree / "out/ckpt").exists()
    cleaned = trainer.run("clean", "--json", "--yes").must(0).json()
    assert cleaned["copies_of_results"] == size
    states = {one["name"].rpartition("/")[2]: one["state"] for one in cleaned["things"]}
    assert states["train-4"] == "removed"
    assert not list((trainer.tree / "out").iterdir())
    assert not (trainer.folder("train-1") / "results.kept").exists()
    assert trainer.run("down", "--dry").must(0)
    # What came home need not be kept again.
    before = list(trainer.folder("train-4").rglob("results.kept/**/*"))
    trainer.train("fourth")
    assert before == list(trainer.folder("train-4").rglob("results.kept/**/*")) == []
    trainer.run("pull", "--all").must(0)
    assert trainer.run("down", "--dry").must(0)


def test_run_is_refused_when_it_would_overwrite_results_too_large_to_copy(trainer: Trainer) -> None:
    with (trainer.tree / "out/large").open("wb") as file:
        file.truncate(200 * 10**9)
    made = trainer.folder("train-1") / "results.made"
    document = json.loads(made.read_text())
    found = (trainer.tree / "out/large").stat()
    state = [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    made.write_text(json.dumps({**document, "files": {**document["files"], "out/large": state}}))
    began = time.monotonic()
    refused = trainer.run("run", "--", "python train.py second").must(9)
    took = time.monotonic() - began
    assert "train-1: 5 files, 200 GB; too large to be copied at once" in refused.err
    for choice in ("pull --all", "--beside", "--overwrite-results"):
        assert choice in refused.err
    assert took < 5 * slowness()
    again = trainer.run("setup", "--restart").must(9)
    assert "pull --all" in again.err
    assert (trainer.tree / "out/ckpt").read_text() == "first"
    assert "saw []" in trainer.train("second", "--beside")
    assert (trainer.tree / "out/ckpt").read_text() == "first"
    trainer.train("third", "--overwrite-results")
    (trainer.tree / "out/large").unlink()
    there = trainer.results()["train-1"]
    assert (there["where"], there["lost_files"]) == ("partly", 4)
    assert there["overwritten_by"] == ["train-3"]
    assert "4 of 5 results overwritten by train-3" in trainer.run("status").out
    lost = trainer.run("pull", "--run", "train-1", "--json").must(0).json()
    assert {one: lost["left_out"][one] for one in ("out/ckpt", "out/large")} == {
        "out/ckpt": "given-up",
        "out/large": "given-up",
    }
    assert trainer.home("train-1") == {"first": "first"}


@pytest.mark.parametrize("became", ["moved", "changed"])
def test_clean_leaves_results_on_the_box_that_are_not_at_home_any_more_as_they_were_pulled(
    trainer: Trainer, became: str
) -> None:
    trainer.run("pull").must(0)
    home = trainer.repository.root / "boxstrap-results/local/train-1"
    if became == "moved":
        home.rename(home.with_name("mine"))
    else:
        (home / "out/ckpt").write_text("other")
    for words in (("clean", "--dry"), ("clean", "--yes")):
        done = trainer.run(*words).must(0)
        assert "results of train-1 stay: what was pulled of them was moved or changed" in done.err
        assert "results of train-1, which are at home" not in done.out
        assert (trainer.tree / "out/ckpt").read_text() == "first"
    assert (trainer.folder("train-1") / "safe").read_text() == "\n"  # nor does the lease
    trainer.run("pull", "--run", "train-1").must(0)
    assert "results of train-1, which are at home: removed" in trainer.run("clean", "--yes").out


def test_a_run_keeps_no_copy_of_earlier_results_if_all_that_is_left_of_them_is_at_home(
    trainer: Trainer,
) -> None:
    """It was refused on a full disk, as a file was removed there by hand to make room."""
    (trainer.tree / "out/first").unlink()
    trainer.run("pull").must(9)
    trainer.train("second")
    assert not (trainer.folder("train-1") / "results.kept").exists()
    assert trainer.home("train-1").keys() == {"ckpt", "renamed", "log"}


def test_down_says_how_to_exclude_results_that_can_not_be_pulled(trainer: Trainer) -> None:
    (trainer.tree / "out/first").unlink()
    (trainer.tree / "out/ckpt").write_text("by hand")
    there = trainer.results()["train-1"]
    assert (there["where"], there["lost_files"], there["overwritten_by"]) == ("partly", 2, [])
    error = trainer.run("down", "--json").must(9).json()["error"]
    let_go = "boxstrap pull --host local --run train-1 --without out/ckpt --without out/first"
    assert error["next"].splitlines()[0] == (
        "Nothing more can be pulled of homework/train-1. "
        f"To let go of them, for down and the lease too: {let_go}"
    )
    trainer.user.run(*shlex.split(let_go)[1:]).must(0)
    assert "nothing on it would be lost" in trainer.run("down").must(0).out
    # Nothing is lost that is at home, whatever became of it on the box.
    trainer.train("second")
    trainer.over("train-2")
    trainer.run("pull", "--run", "train-2").must(0)
    (trainer.tree / "out/second").unlink()
    there = trainer.results()["train-2"]
    assert (there["where"], there["lost_files"], there["overwritten_by"]) == ("home", 0, [])
    # Nor does a pull to elsewhere, which brings less by now, take that back.
    elsewhere = trainer.user.home / "elsewhere"
    less = trainer.run("pull", "--run", "train-2", "--to", str(elsewhere)).must(9)
    assert "train-2: more of its results is at home in" in less.err
    assert trainer.run("down", "--dry").must(0)
    assert trainer.results()["train-2"]["where"] == "home"


def test_pull_brings_results_nobody_recorded_with_the_run_that_has_no_list_of_results(
    trainer: Trainer,
) -> None:
    for name in ("results.before", "results.made"):
        (trainer.folder("train-1") / name).unlink()
    trainer.train("second")
    trainer.run("pull", "--all").must(0)
    assert (trainer.home("train-1"), trainer.home("train-2")) == (FIRST, SECOND)


def test_a_resumed_run_goes_on_from_the_checkpoint_of_the_run_that_died(trainer: Trainer) -> None:
    trainer.run("run", "--", "python train.py dies")
    trainer.over("train-2")
    said = trainer.run("run", "--resume", "train-2").must(0).out
    assert "saw ['ckpt', 'dies'" in said
    trainer.over("train-3")
    trainer.run("pull", "--all").must(0)
    assert trainer.home("train-2")["ckpt"] == "dies"
    assert trainer.home("train-3")["ckpt"] == "more"
    assert "dies" not in trainer.home("train-3")


def test_a_sweep_cell_sees_the_results_of_no_other_cell(trainer: Trainer) -> None:
    sweep = trainer.user.home / "words.txt"
    seen = {}
    for word in ("one", "two", "dies", "again"):
        if word != "again":  # then it is what died that is queued again, and goes on
            with sweep.open("a") as cells:
                cells.write(f"python train.py {word}\n")
        queued = trainer.run("run", "--sweep", str(sweep), "--json").must(0).json()
        (begun,) = queued["boxes"][0]["runs"]
        trainer.over(begun["run"]["name"])
        seen[word] = trainer.run("logs", begun["run"]["name"]).must(0).out.splitlines()[0]
        assert Path(begun["environment"]) == trainer.tree / ".venv"
    nothing = dict.fromkeys(("one", "two", "dies"), "saw []")
    assert seen == {**nothing, "again": "saw ['ckpt', 'dies', 'log', 'renamed']"}
    trainer.run("pull", "--all").must(0)
    trainer.run("clean", "--yes").must(9)  # the tree of what may still be resumed stays
    left = [one.name for one in trainer.tree.parent.glob(f"{trainer.tree.name}@*")]
    assert left == [Path(begun["tree"]).name]
