"""A repository is the same one through every door, and users' own folders are left alone."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.boxes import RigBox
from tests.cli import User
from tests.doors.conftest import Hosted
from tests.main_job.conftest import Rent
from tests.programs import captured

pytestmark = pytest.mark.sampled(of="module")

LONG = ("--set", "env.LINGER=600")
each_paste = pytest.mark.parametrize("words", [(), ("--push",)], ids=["paste", "pushed"])


def typed(box: RigBox, paste: str) -> subprocess.CompletedProcess[str]:
    """Run a paste in a shell on the box; the exit code is the script's."""
    return captured(
        box.ssh_command("bash -s"), input=paste.replace(";rm $f", ""), check=False, timeout=120
    )


def one_training(box: RigBox, commit: str) -> None:
    """Assert that there is one folder with one live training, and its tree is unchanged."""
    assert box.run("ls -d /workspace/*/") == "/workspace/homework/\n"
    assert box.run("git -C /workspace/homework rev-parse HEAD").strip() == commit
    assert box.run("ls -d /workspace/.boxstrap/runs/*/*").count("train-") == 1
    assert box.run("pgrep -fc 'bin/python [t]rain.py'").strip() == "1"


@pytest.mark.sampled
@each_paste
def test_a_pasted_script_neither_disturbs_nor_repeats_a_training_that_setup_started(
    words: tuple[str, ...], rent: Rent, hosted: Hosted, user: User, tmp_path: Path
) -> None:
    box = rent("vast", used=True).box
    made, _ = hosted(box, extends="vast")
    there = ("--host", box.host_string, "--identity", str(box.identity))
    url, first = made.git("remote", "get-url", "origin"), made.head
    made.git("remote", "remove", "origin")
    # A repository without an address is another one to whoever agreed to what its profile takes.
    asked = user.run("setup", *there, *LONG, "--json").must(2).json()["error"]
    user.run("setup", *there, *LONG, "--consent", asked["digest"]).must(0)
    one_training(box, first)
    # As on another machine, which knows the repository by its URL.
    shutil.rmtree(user.state / "repositories")
    made.git("remote", "add", "origin", url)
    for number in range(2):
        made.git("fetch", "-q")
        said = typed(box, user.run("oneliner", *words, *LONG).must(0).out)
        assert "train-1" in said.stdout
        assert "running" in said.stdout
        assert said.returncode == (8 if number else 0)
        assert ("this was not started" in said.stderr) == bool(number)
        one_training(box, first)
        made.commit({"train.py": f"print('step {number}')\n"})
        made.git("push", "-q", str(tmp_path / "host/homework.git"), "main")
    # Another command for the commit that is training is not started either.
    made.git("reset", "-q", "--hard", first)
    other = ("--set", "train.command=python train.py --other")
    assert typed(box, user.run("oneliner", *words, *LONG, *other).must(0).out).returncode == 8
    # The address alone leads to it, too.
    alone = ("--set", f"git.url={url}", "--set", "git.access=url")
    assert "running" in typed(box, user.run("oneliner", *words, *LONG, *alone).must(0).out).stdout
    one_training(box, first)


@pytest.mark.sampled
@each_paste
def test_setup_after_a_pasted_script_reuses_its_tree_and_run_from_a_moved_repository(
    words: tuple[str, ...], rent: Rent, hosted: Hosted, user: User
) -> None:
    box = rent("vast", used=True).box
    made, _ = hosted(box, extends="vast")
    typed(box, user.run("oneliner", *words, *LONG).must(0).out)
    one_training(box, made.head)
    made.git("remote", "remove", "origin")
    shutil.rmtree(user.state / "repositories")
    there = ("--host", box.host_string, "--identity", str(box.identity))
    moved = made.root.rename(made.root.with_name("moved"))
    user.place = moved
    user.run("setup", *there, "--set", "env.LINGER=601")
    made.root = moved
    one_training(box, made.head)
