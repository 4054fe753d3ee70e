"""`down` lists everything that would be lost with a box, and nothing else.

The box is this machine. All tests share it and one user; each undoes its changes.
"""

import contextlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases import parts_of, read_cases
from tests.cli import OWN_MACHINE, Completed, User, UserRepository
from tests.unit.transfer.boxes import held
from tests.used_here import seem_set_up

pytestmark = [pytest.mark.slow, pytest.mark.sampled(of="module")]

PROFILE = OWN_MACHINE + "train: {command: python train.py, results: [out/]}\n"
TRAIN = """\
from pathlib import Path

Path("out").mkdir(exist_ok=True)
for name in "ab":
    Path(f"out/{name}").write_text(name)
Path("out/last").symlink_to("b")
print("step 1", flush=True)
"""
LOCAL = ("--host", "local")
ME = {
    f"GIT_{who}_{what}": "b@example.org"
    for who in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}


class World:
    """A repository, its tree on the box, and its pulled results."""

    def __init__(self, folder: Path) -> None:
        self.user = seem_set_up(User(folder / "home"))
        self.repository: UserRepository = self.user.repository(
            boxstrap__yaml=PROFILE, train__py=TRAIN, keep__txt="here\n", __gitignore="*.tmp\n"
        )
        inner = self.user.repository("inner", inner__txt="here\n")
        local = ("-c", "protocol.file.allow=always")
        self.repository.git(*local, "submodule", "--quiet", "add", str(inner.root), "lib")
        self.repository.git("commit", "-q", "-m", "Add a submodule")
        self.user.place = self.repository.root
        self.user.run("setup", *LOCAL).must(0)
        self.user.run("wait", *LOCAL).must(0)
        self.user.run("pull", *LOCAL).must(0)
        self.tree = self.user.home / "work" / self.repository.root.name
        self.home = self.repository.root / "boxstrap-results/local/train-1"

    @property
    def receipt(self) -> Path:
        (file,) = self.user.state.glob("boxes/local/receipts/*/train-1.json")
        return file

    def sh(self, script: str, **env: object) -> str:
        """Run this in the tree; return what it prints."""
        places = {"AT_HOME": self.home, "RECEIPT": self.receipt, **env}
        done = subprocess.run(
            ["sh", "-ec", script],
            cwd=self.tree,
            env={**os.environ, **ME, **{name: str(place) for name, place in places.items()}},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        return done.stdout

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Put tree, results and receipt back after that."""
        places = {self.user.home / f"aside-{at}": place for at, place in enumerate(
            (self.tree, self.home, self.receipt)
        )}  # fmt: skip
        for aside, place in places.items():
            place.rename(aside)
            subprocess.run(["cp", "-a", aside, place], check=True)
        try:
            yield
        finally:
            for aside, place in places.items():
                subprocess.run(["rm", "-rf", place], check=True)
                aside.rename(place)

    def look(self, rc: int) -> list[str]:
        """Return the list of `down --dry`, which must exit with `rc`."""
        return self.listed(self.user.run("--dry", "down", *LOCAL, "--json"), rc)

    @staticmethod
    def listed(ended: Completed, rc: int) -> list[str]:
        """Return the list from JSON, and check that the error text has the same."""
        unsafe = ended.must(rc).json()["unsafe"]
        for one in unsafe:
            assert f"{one['where']}: {one['what']}" in ended.json()["error"]["what"]
        return [f"{one['kind']} {one['where']}: {one['what']}" for one in unsafe]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("down"))
    yield made
    made.user.run("stop", *LOCAL, "--all")


def forged(world: World) -> None:
    """A receipt changed by somebody without this machine's key."""
    body = json.loads(world.receipt.read_text())
    (world.tree / "out/new").write_text("1")
    body["files"]["out/new"] = [1, "0" * 64, "out/new"]
    world.receipt.write_text(json.dumps(body))


def of_another_box(world: World) -> None:
    """A receipt that this machine wrote for the same run on another box."""
    from unittest.mock import patch

    from bootstrap.boxes import receipt

    with patch("bootstrap.boxes.secrets.state_dir", lambda: world.user.state):
        receipt.note_name(world.receipt.parents[2], "local", "other")


RESULTS = "results homework/train-1:"
WAYS: dict[str, tuple[str | Callable[[World], Any], list[str]]] = {
    **{
        name: (parts_of(text)[""], parts_of(text)["listed"].splitlines())
        for name, text in read_cases(Path(__file__).with_name("unsafe.txt"))[1:]
    },
    "a forged receipt": (forged, [f"{RESULTS} this machine has no receipt for the run"]),
    "another box's receipt": (of_another_box, [f"{RESULTS} the receipt is for another run"]),
    "a result that is being written": (
        lambda world: held(world.tree / "out/b"),
        [f"{RESULTS} out/b: a process has it open for writing"],
    ),
}
"""What makes it so, on the box, and what is listed then."""


def test_down_finds_a_box_safe_whose_files_are_all_at_home(world: World) -> None:
    for folder in ("mine.egg-info", ".venv"):  # what a setup makes
        (world.tree / folder).mkdir(exist_ok=True)
        (world.tree / folder / "inner.tmp").write_text("of no worth")
    # Python makes these where a repository doesn't ignore them: in this one, and in its submodule.
    for folder in ("", "lib"):
        (world.tree / folder / "__pycache__").mkdir()
        (world.tree / folder / "__pycache__/inner.cpython-311.pyc").write_text("compiled")
    assert world.look(0) == []
    back = world.user.run("sync", "--back", *LOCAL).must(0)
    assert "__pycache__" not in back.text
    said = world.user.run("--dry", "down", *LOCAL).must(0)
    assert "would not be destroyed: this machine was not rented" in said.out


@pytest.mark.parametrize("results", ["", ", results: [tables/]"], ids=["none", "guessed"])
def test_down_refuses_to_lose_training_output_in_ignored_files(user: User, results: str) -> None:
    """Its profile names no results, or a folder of tracked tables that nothing has changed."""
    profile = PROFILE.replace(", results: [out/]", results)
    assert profile != PROFILE
    train = (
        "import os\nfor name in ('models/deep', 'runs'):\n    os.makedirs(name)\n"
        "    open(f'{name}/a.pt', 'w').write('trained')\nopen('pred.csv', 'w').write('1')\n"
    )
    repository = user.repository(
        boxstrap__yaml=profile, train__py=train, __gitignore="models/\nruns/\n*.csv\nboxstrap*/\n"
    )
    (repository.root / "tables").mkdir()
    (repository.root / "tables/a.txt").write_text("as it was committed")
    repository.git("add", "--all")
    repository.git("commit", "-q", "-m", "Add a table")
    user.run("setup", *LOCAL).must(0)
    user.run("wait", *LOCAL).must(0)
    pulled = user.run("pull", *LOCAL).must(0)
    home = repository.root / "boxstrap-results/local/train-1"
    assert not (home / "tables").exists()
    named = [f"{one} is ignored by git, and no run's result" for one in (
        "models/ (1 file, 7 B)", "runs/ (1 file, 7 B)", "pred.csv (1 file, 1 B)",
    )]  # fmt: skip
    shown = user.run("status", *LOCAL).must(0).out
    assert all(one in told for one in named for told in (pulled.err, shown))
    (found, *_) = user.run("status", *LOCAL, "--json").must(0).json()["at_risk"]
    assert found == {"run": "train-1", "files": 1, "bytes": 7, "path": "models/"}
    refused = user.run("down", *LOCAL).must(9).err
    assert all(f"homework: {one}" in refused for one in named)
    commands = [line.partition(": ")[2] for line in refused.splitlines() if " pull --host " in line]
    bring, let_go = (shlex.split(one)[1:] for one in commands)
    assert bring[-6:] == ["--also", "models/", "--also", "runs/", "--also", "pred.csv"]
    user.run(*let_go[:-4]).must(0)  # of the first, and the others come
    user.run(*bring[:-6], *bring[-4:]).must(0)
    assert (home / "runs/a.pt").read_text() == "trained"
    assert (home / "pred.csv").exists()
    assert not (home / "models").exists()
    assert "nothing on it would be lost" in user.run("down", *LOCAL).must(0).out
    assert "--also ../x has an empty part" in user.run("pull", *LOCAL, "--also", "../x").must(2).err


def test_results_that_the_profile_names_since_the_run_are_at_home_once_they_were_pulled(
    user: User,
) -> None:
    train = "import os\nos.mkdir('out')\nopen('out/a.pt', 'w').write('trained')\n"
    profile = PROFILE.replace(", results: [out/]", "")
    repository = user.repository(boxstrap__yaml=profile, train__py=train, __gitignore="out/\n")
    user.run("setup", *LOCAL).must(0)
    user.run("wait", *LOCAL).must(0)
    user.run("run", *LOCAL, "--beside").must(0)
    user.run("wait", *LOCAL).must(0)
    (repository.root / "boxstrap.yaml").write_text(PROFILE)
    pulled = user.run("pull", "--all", *LOCAL).must(0)
    assert "would go with the box" not in pulled.err
    status = user.run("status", *LOCAL, "--json").must(0).json()
    assert status["at_risk"] == []
    results = [run["results"] for run in status["runs"]]
    assert [(one["where"], one["files"]) for one in results] == [("home", 1)] * 2
    assert (
        f"{repository.root.name}@2: would be removed"
        in user.run("clean", *LOCAL, "--dry").must(0).out
    )
    assert "nothing on it would be lost" in user.run("down", *LOCAL).must(0).out
    (user.home / "work" / repository.root.name / "out/a.pt").write_text("edited")
    assert "train-1: out/a.pt: was changed after its run" in user.run("down", *LOCAL).must(9).err
    home = repository.root / "boxstrap-results/local/train-1"
    assert (home / "out/a.pt").read_text() == "trained"


def test_down_looks_at_the_working_folder_in_which_a_repository_was_before(user: User) -> None:
    train = "import os, sys\nos.makedirs('out', exist_ok=True)\n"
    train += "open('out/a.pt', 'w').write(sys.argv[-1])\n"
    repository = user.repository(boxstrap__yaml=PROFILE, train__py=train, __gitignore="out/\n")
    user.run("setup", *LOCAL).must(0)
    user.run("wait", *LOCAL).must(0)
    own = PROFILE.replace("~/work", "~/new").replace("python train.py", "python train.py new")
    (repository.root / "boxstrap.yaml").write_text(own)
    moved = user.run("run", *LOCAL).must(0)
    assert "homework was in ~/work until now. Its runs and results there stay" in moved.err
    user.run("wait", *LOCAL).must(0)
    assert "until now" not in user.run("run", *LOCAL).must(0).err
    user.run("wait", *LOCAL).must(0)
    user.run("pull", "--all", *LOCAL).must(0)
    refused = user.run("down", *LOCAL).must(9).err
    assert "~/work: homework/train-1: out/a.pt: the box has a different file" in refused
    back = ("--set", "box.workdir=~/work")
    assert f"or go back to it: boxstrap setup --host local {' '.join(back)}\n" in refused
    assert user.run("setup", *LOCAL, *back).must(0)
    user.run("pull", *LOCAL, "--run", "train-1").must(0)
    home = repository.root / "boxstrap-results/local/train-1/out"
    texts = {file.name: file.read_text() for file in home.iterdir()}
    assert texts == {"a.pt": "new", "a.from-train-1.pt": "train.py"}
    assert "~/new: homework/train-1: out/a.pt: the box has" in user.run("down", *LOCAL).must(9).err


def test_down_refuses_to_lose_git_ignored_files_written_by_hand_without_a_run(user: User) -> None:
    """In an editor on the box, say: nothing was ever run, so no results are known."""
    repository = user.repository(
        boxstrap__yaml=PROFILE.replace("train:", "# "), __gitignore="out/\ndata/\n*.log\n*info/\n"
    )
    user.run("setup", *LOCAL).must(0)
    tree = user.home / "work" / repository.root.name
    os.utime(tree, (1, 1))
    assert user.run("--dry", "down", *LOCAL).must(0)
    for folder in ("lib/__pycache__", "mine.egg-info", ".git/info"):
        (tree / folder).mkdir(parents=True, exist_ok=True)
    for made in ("lib/__pycache__/a.log", "mine.egg-info/a", "old.log", "fetched.log"):
        (tree / made).write_text("of no worth")
    os.utime(tree / "old.log", (1, 1))
    (tree / ".git/info/exclude").write_text("/fetched.log\n")
    (repository.root / ".git/info/exclude").write_text("/sets/\n")  # on this machine alone
    for folder in ("data", "sets"):
        (repository.root / folder).mkdir()
        (repository.root / folder / "pushed").write_text("from home, and newer than the setup")
        user.run("push", f"{folder}/", *LOCAL).must(0)
        assert (tree / folder / "pushed").exists()
    assert "nothing was made on the box" in user.run("sync", "--back", *LOCAL).must(0).out
    assert user.run("--dry", "down", *LOCAL).must(0)
    (tree / "data/pushed").write_text("another")
    assert "(1): data/pushed" in user.run("--dry", "down", *LOCAL).must(9).err
    (tree / "data/pushed").unlink()
    (tree / "out").mkdir()
    (tree / "out/model.pt").write_text("trained by hand")
    assert user.run("--dry", "down", *LOCAL, "--json").must(9).json()["destroyed"] is False
    said = user.run("--dry", "down", *LOCAL).must(9).err
    assert "files created there that git ignores (1): out/model.pt" in said
    assert "Take them by scp or rsync" in said


TOGETHER = (
    "a branch, edits, a new file in the index alone, a repository in the tree, "
    "a result that came later",
    "a new file, an edit in the index alone, a result that was renamed",
    "an edit in a submodule, a tag, a result that changed on the box",
    "stashes, a new file in a submodule, a result that changed here",
    "a commit in a submodule, a branch whose name is no UTF-8, a result that went from here",
    "a commit that a submodule doesn't stand on, a result that leads elsewhere",
    "another working tree, no receipt",
    "an index that can't be compared, a forged receipt",
    "another box's receipt",
    "a tree without its git, a folder that went from here",
    "a result that is being written",
)
"""Ways that are listed beside each other: a look takes seconds."""
assert sorted(WAYS) == sorted(", ".join(TOGETHER).split(", "))


@pytest.mark.parametrize("ways", TOGETHER)
def test_down_lists_what_would_be_lost_for_each_kind_of_unsafe_state(
    ways: str, world: World, tmp_path: Path
) -> None:
    expected = [want for way in ways.split(", ") for want in WAYS[way][1]]
    before = sorted(world.repository.root.rglob("*"))
    with contextlib.ExitStack() as stack:
        stack.enter_context(world.restored())
        for made, _ in map(WAYS.__getitem__, ways.split(", ")):
            if isinstance(made, str):
                world.sh(made, BESIDE=tmp_path)
            elif being := made(world):
                stack.enter_context(being)
        ended = world.user.run("--dry", "down", *LOCAL, "--json")
    found = world.listed(ended, 9)
    assert len(found) == len(expected), found
    assert all(any(want in one for one in found) for want in expected), found
    assert before == sorted(world.repository.root.rglob("*")), "a look brings nothing"


def test_pull_exits_with_9_naming_each_result_that_can_never_be_pulled(world: World) -> None:
    """A link that led out of the results was exit 9 and "run the same command again", for ever."""
    user, tree = world.user, world.tree
    (tree / "out/link").symlink_to(tree / "train.py")
    (tree / "out/dead").symlink_to("nowhere")
    (tree / "out/a b").symlink_to("/etc")
    refused = user.run("pull", *LOCAL).must(9).err
    assert "out/link: is a link that leads out of the results" in refused
    assert "out/dead: " not in refused
    assert "same command again" not in refused
    assert "--run train-1 --without 'out/a b' --without out/link" in refused
    # The receipt covers the rest.
    assert world.look(9) == [
        "results homework/train-1: out/a b is a link that leads out of the results",
        "results homework/train-1: out/link is a link that leads out of the results",
    ]
    said = user.run("pull", *LOCAL, "--without", "out/l*", "--without", "out/typo").must(9)
    assert "--without out/typo: no result of train-1 has that name" in said.err
    assert "--without 'out/l*' --without out/typo --without 'out/a b'" in said.err
    user.run("pull", *LOCAL, "--without", "out/l*", "--without", "out/a b").must(0)
    said = user.run("pull", *LOCAL).must(0)
    assert "let go, by --without: out/l*, out/a b" in said.out
    assert world.look(0) == []
    said = user.run("--dry", "down", *LOCAL).must(0).err
    assert re.search(r"let go +of train-1: out/l\*, out/a b\n", said), "as the box says it"
    odd = tree / os.fsdecode(b"out/\xff'\n[1]")
    odd.write_text("odd")
    said = user.run("pull", *LOCAL).must(9).err
    assert r"--without $'out/\xff\x27\x0a[[]1]'" in said
    user.run("pull", *LOCAL, "--without", "out/*link", "--without", "out/\udcff'\n[[]1]").must(9)
    assert len(world.look(9)) == 1
    odd.unlink()
    user.run("pull", *LOCAL, "--without", "-").must(9)
    assert len(world.look(9)) == 2
    (tree / "out/dead").unlink()
    (tree / "out/a b").unlink()
    (tree / "out/link").unlink()
    user.run("pull", *LOCAL).must(0)


def test_a_result_changed_after_its_run_can_be_excluded_from_down(world: World) -> None:
    with world.restored():
        world.sh("printf A >out/a")
        refused = world.user.run("--dry", "down", *LOCAL).must(9).err
        assert "out/a: was changed after its run ended, by no run" in refused
        assert "--run train-1 --without PATH" in refused
        pulled = world.user.run("pull", *LOCAL).must(9).err
        assert "out/a: was changed after its run ended, by no run" in pulled
        world.user.run("pull", *LOCAL, "--without", "out/a").must(0)
        assert world.look(0) == []
        world.sh("mkdir art; echo z >art/z; echo y >y.csv")  # that git ignores at home alone
        let_go = ("--without", "out/a", "--without", "art/", "--without", "*.csv")
        world.user.run("pull", *LOCAL, *let_go).must(0)
        assert world.look(9) == ["edits homework: files created there (1): y.csv"]
        back = world.user.run("sync", "--back", *LOCAL).must(0)
        assert "edits made on the box: 1 new (y.csv)" in back.out
        assert world.look(0) == []
    world.user.run("pull", *LOCAL, "--without", "-").must(0)


def test_missing_parts_of_a_sharded_checkpoint_are_named_by_pull(world: World) -> None:
    """Two of three were pulled silently, as if they were all."""
    for number in (1, 3):
        (world.tree / f"out/model-0000{number}-of-00003.bin").write_text("x")
    said = world.user.run("pull", *LOCAL).must(0).out
    assert "out/model-00002-of-00003.bin is no result of this run, which has 2 of 3 parts" in said
    manifest = json.loads((world.home / "boxstrap-manifest.json").read_text())
    assert [*manifest["left_out"]] == ["out/model-00002-of-00003.bin"]
    for number in (1, 3):
        (world.tree / f"out/model-0000{number}-of-00003.bin").unlink()
    world.user.run("pull", *LOCAL).must(0)


def test_down_is_refused_during_runs_unless_stop_runs_tells_it_to_end_them(world: World) -> None:
    user = world.user
    user.run("run", *LOCAL, "--", "sh", "-c", "echo go; setsid sleep 301 & sleep 1").must(0)
    user.run("run", *LOCAL, "--session", "long", "--", "sh", "-c", "echo go; sleep 300").must(0)
    user.run("run", *LOCAL, "--session", "next", "--after", "long-1", "--", "true").must(0)
    user.run("wait", *LOCAL, "--run", "train-2").must(0)
    found = [one for one in world.look(9) if not one.startswith("results")]
    assert len(found) == 4, found
    (long,) = (one for one in found if one.startswith("run homework/long-1: running"))
    (queued,) = (one for one in found if one.startswith("queued homework/next-1: queued: begins"))
    (left,) = (one for one in found if one.startswith("processes homework/train-2: finished; 1 of"))
    assert "log homework/train-2: its log (3 B) and record are not at home" in found
    refused = user.run("down", *LOCAL).must(9)
    assert "--stop-runs" in refused.err
    assert len({long, queued, left}) == 3
    assert "long-1" in user.run("status", *LOCAL).out
    done = user.run("down", *LOCAL, "--stop-runs", "--json").must(0)
    assert done.json()["destroyed"] is False
    runs = {run["name"]: run for run in user.run("status", *LOCAL, "--json").json()["runs"]}
    assert (runs["long-1"]["ended"], runs["next-1"]["ended"]) == ("stop", "stop")
    assert runs["train-2"]["left"] == 0


def test_down_brings_edits_and_results_home_before_it_destroys_a_box(world: World) -> None:
    (world.tree / "keep.txt").write_text("on the box\n")
    (world.tree / "new").write_text("new")
    (world.tree / "out/c").write_text("c")
    world.sh("git checkout -q -b try; git commit -q --allow-empty -m Try; git checkout -q -\n")
    tip = world.sh("git rev-parse try").strip()
    # From another folder no work is brought home, and the refusal lists it.
    elsewhere = world.user.home / "elsewhere"
    elsewhere.mkdir()
    place, world.user.place = world.user.place, elsewhere
    refused = world.user.run("down", *LOCAL).must(9).err
    world.user.place = place
    assert "commits that are only there: refs/heads/try" in refused
    assert "edited (1): keep.txt; files created there (1): new" in refused
    world.user.run("down", *LOCAL).must(0)
    git = world.repository.git
    assert git("rev-parse", "refs/boxstrap/local/heads/try") == tip
    edits = "refs/boxstrap/local/edits"
    assert git("show", f"{edits}:keep.txt") == "on the box"
    # Results are pulled, not brought as edits.
    assert git("diff", "--name-only", f"{edits}^", edits).split() == ["keep.txt", "new"]
    assert world.look(0) == []
    # The current content counts: an edit on the box after that is unsafe again.
    (world.tree / "new").write_text("newer")
    assert world.look(9) == ["edits homework: edited (1): keep.txt; files created there (1): new"]
    # Work that the user's own `sync --back` brought is safe too, whatever folder they ask from.
    world.user.run("sync", "--back", *LOCAL).must(0)
    world.user.place = elsewhere
    assert [one for one in world.look(0) if "results" not in one] == []
    world.user.place = place
    git("update-ref", "-d", edits)
    assert len(world.look(0)) == 0  # it is kept as it came too, since there is a submodule
    git("update-ref", "-d", "refs/boxstrap/local/submodules")
    assert len(world.look(9)) == 1
    (world.tree / "new").unlink()
    world.sh("git checkout -q -- keep.txt; git branch -q -D try")


def test_down_also_checks_second_trees_and_trees_of_unknown_repositories(world: World) -> None:
    user = world.user
    user.run("run", *LOCAL, "--session", "first", "--", "sh", "-c", "echo go; sleep 300").must(0)
    user.run("run", *LOCAL, "--session", "beside", "--", "sh", "-c", "mkdir out; date | tee out/d")
    user.run("wait", *LOCAL, "--run", "beside-1").must(0)
    beside = world.tree.with_name("homework@2")
    user.run("pull", *LOCAL, "--run", "beside-1").must(0)
    user.run("down", *LOCAL, "--stop-runs").must(0)
    assert world.look(0) == []
    text = (beside / "keep.txt").read_text()
    (beside / "keep.txt").write_text("x")
    assert world.look(9) == ["edits homework@2: edited (1): keep.txt"]
    (beside / "keep.txt").write_text(text)
    # Without the local repository the box's edits can't be compared.
    aside = world.repository.root.rename(world.repository.root.with_name("aside"))
    user.place = user.home
    (world.tree / "keep.txt").write_text("x")
    assert "edits homework: edited (1): keep.txt" in world.look(9)
    (world.tree / "keep.txt").write_text(text)
    user.place = aside.rename(world.repository.root)


def test_down_still_finds_pulled_results_safe_after_forget_and_another_setup(world: World) -> None:
    assert world.look(0) == []
    world.user.run("boxes", "--forget", "local").must(0)
    assert "nothing of them is here" not in world.user.run("setup", *LOCAL).must(0).err
    assert world.look(0) == []
