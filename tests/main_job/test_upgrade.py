"""A box that an earlier version set up is taken over: nothing trains twice, and no tree is lost."""

from __future__ import annotations

import hashlib
import json
import subprocess
from functools import partial
from pathlib import Path

import pytest

from bootstrap.shell import box_files, is_needed
from tests.cli import PROFILE
from tests.main_job.conftest import Rent
from tests.main_job.earlier import before, kept, unpacked
from tests.main_job.rented import Rented

pytestmark = [pytest.mark.boxes, pytest.mark.sampled(of="module")]

EARLIER = "0f4b76a"
LONG = PROFILE.replace("train:", 'env: {LINGER: "600"}\ntrain:')
URL = "https://example.org/me/homework.git"
REQUIREMENTS = "iniconfig>=2\n"


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The earlier program."""
    return unpacked(EARLIER, tmp_path_factory.mktemp("earlier"))


@pytest.fixture
def rented(rent: Rent, earlier: Path) -> Rented:
    """A box, and a repository whose training keeps running."""
    rented = rent("vast", by=earlier)
    rented.user.repository(boxstrap__yaml=LONG, requirements__txt=REQUIREMENTS)
    return rented


def set_up_before(rented: Rented, earlier: Path) -> dict[str, str]:
    """Set up with the earlier program; return what must still be there afterwards."""
    before(rented, earlier, "setup").end().must(0)
    assert not rented.as_user(f"ls {rented.folder}/steps/*/repo.dir 2>/dev/null || :")
    return kept(rented, rented.tree)


def sampled(rented: Rented) -> dict[str, str]:
    """The newest run as `top` shows it."""
    sample = json.loads(rented.run("top", "--looks", "1", "--json").must(0).out)
    found: dict[str, str] = sample["run"]
    return found


def test_while_its_run_lives(rented: Rented, earlier: Path) -> None:
    was = set_up_before(rented, earlier)
    assert sampled(rented)["state"] == "running"
    again = rented.run("setup").must(0)
    assert "train-1: running" in again.out
    assert kept(rented, rented.tree) == was
    # The programs of the earlier version stay for its run; none of them is in this one's package.
    rented.as_user(f"test -f {rented.folder}/box/watch.py")
    python = rented.as_user(f"cd {rented.folder}/box && ls onbox/*.py onbox/*/*.py").split()
    carried = [name for name, _ in box_files() if is_needed(name, ("train",))]
    assert python == sorted(name for name in carried if name.endswith(".py"))
    assert sampled(rented)["state"] == "running"
    assert "nothing to do" in rented.run("setup").must(0).out
    commit = rented.user.place / "train.py"
    commit.write_text("print('step 9')\n")
    subprocess.run(["git", "commit", "-qam", "Go on"], cwd=rented.user.place, check=True)
    assert "train-1 is running" in rented.run("setup").text
    assert (kept(rented, rented.tree), rented.trainings()) == (was, 1)
    assert rented.run("logs").must(0).out.startswith("step 1 loss")
    assert "stopped: train-1" in rented.run("stop").must(0).out
    assert rented.trainings() == 0
    assert "step 9" in rented.run("setup").must(0).out
    assert rented.runs() == ["train-1", "train-2"]
    assert kept(rented, rented.tree)["environment"] == was["environment"]


def test_the_same_content_is_its_work_whatever_its_commit_is_called(
    rented: Rented, earlier: Path
) -> None:
    """The earlier version recorded only a commit, so its tree is looked up."""
    git = partial(subprocess.run, cwd=rented.user.place, check=True)
    git(["git", "commit", "-q", "--allow-empty", "-m", "Not the first, which names the repository"])
    was = set_up_before(rented, earlier)
    git(["git", "commit", "-q", "--amend", "--allow-empty", "-m", "Say it in other words"])
    assert "train-1: running" in rented.run("setup").must(0).out
    assert (kept(rented, rented.tree), rented.trainings()) == (was, 1)
    rented.run("stop").must(0)
    assert "train-1: was stopped" in rented.run("setup").must(0).out
    assert "nothing to do" in rented.run("setup").must(0).out
    # Now the box has that commit; another one on top changes nothing.
    head = git(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    assert rented.as_user(f"git -C {rented.tree} rev-parse HEAD") == head
    git(["git", "commit", "-q", "--allow-empty", "-m", "Nothing"])
    assert "train-1: was stopped" in rented.run("setup").must(0).out
    assert (rented.runs(), rented.trainings()) == (["train-1"], 0)
    rented.user.place.joinpath("train.py").write_text("print('step 9')\n")
    git(["git", "commit", "-qam", "Other content"])
    assert "step 9" in rented.run("setup").must(0).out
    # The same holds for a run of this version.
    git(["git", "commit", "-q", "--amend", "-m", "In other words again"])
    assert "train-2: finished" in rented.run("setup").must(0).out
    assert rented.runs() == ["train-1", "train-2"]
    record = rented.as_user(f"cd {rented.folder}/runs/*/train-2 && cat snapshot tree")
    ran = git(["git", "rev-parse", "HEAD@{1}"], capture_output=True, text=True).stdout
    listed = git(["git", "ls-tree", "HEAD"], capture_output=True, text=True).stdout
    content = "".join(line for line in listed.splitlines(True) if "\tboxstrap.yaml" not in line)
    assert record == f"{ran}{hashlib.sha256(content.encode()).hexdigest()}\n"


STRAY = """\
import subprocess, time
subprocess.Popen(["setsid", "sleep", "98765"])
print("step 1", flush=True)
time.sleep(600)
"""
ALL = "pgrep -fc '[s]leep 98765|bin/python [t]rain.py' || :"


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["stop", "restart", "killed runner"])
def test_a_live_run_of_its_runner_ends_as_a_whole(rented: Rented, earlier: Path, how: str) -> None:
    rented.user.place.joinpath("train.py").write_text(STRAY)
    subprocess.run(["git", "commit", "-qam", "Stray"], cwd=rented.user.place, check=True)
    set_up_before(rented, earlier)
    assert rented.as_user(ALL).strip() == "2"
    assert "train-1  running" in " ".join(rented.run("status").must(0).out.split("\n"))
    assert "train-1: running" in rented.run("setup").must(0).out
    following = rented.begin("logs", "-f")
    assert following.line() == "step 1\n"
    if how == "restart":
        said = rented.run("setup", "--restart").must(0)
        assert "train-1 is running: it is stopped first" in said.err
        assert rented.runs() == ["train-1", "train-2"]
        assert rented.as_user(ALL).strip() == "2"
    else:
        if how == "killed runner":
            rented.as_user(
                f"kill -9 $(head -n 1 {rented.folder}/runs/*/train-1/pid | cut -d' ' -f1)"
            )
        assert "stopped: train-1" in rented.run("stop").must(0).out
        assert rented.as_user(ALL).strip() == "0"
    assert "train-1 was stopped after" in following.end().must(0).text
    assert "was stopped" in rented.run("status").must(0).out


def test_after_its_run_ended(rented: Rented, earlier: Path) -> None:
    rented.user.place.joinpath("boxstrap.yaml").write_text(PROFILE)
    subprocess.run(["git", "commit", "-qam", "Be quick"], cwd=rented.user.place, check=True)
    was = set_up_before(rented, earlier)
    again = rented.run("setup").must(0)
    assert "train-1: finished" in again.out
    assert (kept(rented, rented.tree), rented.runs()) == (was, ["train-1"])
    rented.as_user(f"touch {rented.tree}/mine")
    rented.user.place.joinpath("train.py").write_text("print('step 9')\n")
    subprocess.run(["git", "commit", "-qam", "Go on"], cwd=rented.user.place, check=True)
    assert "step 9" in rented.run("setup").must(0).out
    assert rented.box.exists(f"{rented.tree}/mine")
    assert kept(rented, rented.tree)["environment"] == was["environment"]


def test_without_a_run(rented: Rented, earlier: Path) -> None:
    rented.user.place.joinpath("boxstrap.yaml").write_text("version: 1\ngpu: {require: false}\n")
    subprocess.run(["git", "commit", "-qam", "Only set up"], cwd=rented.user.place, check=True)
    before(rented, earlier, "setup").end().must(0)
    look = f"cd {rented.tree} && stat -c '%n %i %Y' train.py .git/HEAD .venv/pyvenv.cfg .venv/lib"
    was = rented.as_user(look)
    rented.run("setup").must(0)
    assert rented.as_user(look) == was
    assert "nothing to do" in rented.run("setup").must(0).out


def test_its_setup_that_still_works_is_followed_or_waited_for(
    rented: Rented, earlier: Path
) -> None:
    going = before(rented, earlier, "setup")
    going.await_said("repo")
    rented.run("setup").must(0)
    going.end().must(0)
    assert (rented.runs(), rented.trainings()) == (["train-1"], 1)


def test_a_remote_that_was_added_in_between(rented: Rented, earlier: Path) -> None:
    was = set_up_before(rented, earlier)
    subprocess.run(["git", "remote", "add", "origin", URL], cwd=rented.user.place, check=True)
    assert "train-1: running" in rented.run("setup").must(0).out
    now = kept(rented, rented.tree)
    assert (now, rented.runs(), rented.trainings()) == (was, ["train-1"], 1)


def test_two_keys_of_one_folder_look_after_each_others_run(rented: Rented, earlier: Path) -> None:
    """In the earlier program, adding a remote let a second training start next to the first."""
    set_up_before(rented, earlier)
    subprocess.run(["git", "remote", "add", "origin", URL], cwd=rented.user.place, check=True)
    subprocess.run(
        ["git", "commit", "-q", "--allow-empty", "-m", "Go on"], cwd=rented.user.place, check=True
    )
    before(rented, earlier, "setup").end().must(0)
    assert rented.trainings() == 2
    rented.run("stop", "--run", "train-1")
    was = kept(rented, rented.tree)
    left = rented.trainings()
    assert left == 1
    subprocess.run(["git", "remote", "remove", "origin"], cwd=rented.user.place, check=True)
    rented.user.place.joinpath("train.py").write_text("print('step 9')\n")
    subprocess.run(["git", "commit", "-qam", "Go on"], cwd=rented.user.place, check=True)
    for remote in ([], ["git", "remote", "add", "origin", URL]):
        if remote:
            subprocess.run(remote, cwd=rented.user.place, check=True)
        assert "is running" in rented.run("setup").text
        assert kept(rented, rented.tree) == was


FLAT = "d13f9e72"
"""The last commit whose programs were in one flat folder on a box."""
HELD = """\
import pathlib, sys, time
pathlib.Path("out").mkdir(exist_ok=True)
pathlib.Path("out", sys.argv[1]).write_text(sys.argv[1])
print("step 1 loss 0.5", flush=True)
while not pathlib.Path("../go").exists():
    time.sleep(0.1)
"""
KEPT = """\
version: 1
gpu: {require: false}
train: {command: python train.py first, results: [out/]}
"""
LEASE = ("--set", "lease.hours=12")


def test_programs_of_a_flat_folder_go_on_beside_the_package(
    rent: Rent, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A live run, a queued one and a lease of theirs are in the hands of their own programs."""
    flat = unpacked(FLAT, tmp_path_factory.mktemp("flat"))
    rented = rent("vast", by=flat)
    files = {".gitignore": "out/\n"}
    rented.user.repository(boxstrap__yaml=KEPT, train__py=HELD, **files)
    before(rented, flat, "setup", *LEASE).end().must(0)
    second = ("--queue", "--", "python", "train.py", "second")
    before(rented, flat, "run", *LEASE, *second).end().must(0)
    monitor = rented.as_user("pgrep -of 'box/[m]onitor.py'")
    for _ in ("before a setup of this version", "after it"):
        status = rented.status()
        assert {run["name"]: run["state"] for run in status["runs"]} == {
            "train-1": "running",
            "train-2": "queued",
        }
        assert status["lease"]["limits"]["hours"]["limit"] == 12 * 3600
        assert sampled(rented)["state"] == "queued"
        assert "train-1: running" in rented.run("setup", *LEASE).must(0).out
    assert rented.as_user("pgrep -of 'box/[m]onitor.py'") == monitor
    assert rented.as_user(f"ls {rented.folder}/box/onbox/lease/rules.py")
    rented.as_user(f"touch {rented.tree}/../go")
    assert "train-2" in rented.run("wait", "--run", "train-2").must(0).text
    made = f"cd {rented.folder}/runs/*/ && grep -l . train-?/results.made"
    assert rented.as_user(made).split() == ["train-1/results.made", "train-2/results.made"]
    rented.run("pull", "--all").must(0)
    # What is begun now is begun by this version.
    third = rented.run("run", *LEASE, "--", "python", "train.py", "third").must(0)
    assert "step 1 loss" in third.text
    assert rented.runs() == ["train-1", "train-2", "train-3"]
