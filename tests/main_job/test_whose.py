"""Two repositories on one box: neither reaches the other's run by accident. In this order."""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.cli import PROFILE, User, UserRepository
from tests.main_job.rented import Rented
from tests.main_job.used import start_used

pytestmark = pytest.mark.boxes

TRAIN = "import time\nprint('{} begins', flush=True)\ntime.sleep(600)\n"
FAILS = "import time\nprint('step 1 of 9', flush=True)\ntime.sleep(3)\nraise SystemExit(7)\n"


@dataclass
class Two:
    """A box on which two repositories of one user train."""

    rented: Rented
    mine: UserRepository
    theirs: UserRepository

    def standing_in(self, where: UserRepository | None) -> Rented:
        user = self.rented.user
        user.place = where.root if where else user.home
        return self.rented


@pytest.fixture(scope="module")
def two(
    mirror_rig: Rig, shared_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Two]:
    user = User(tmp_path_factory.mktemp("whose") / "home")
    box = start_used(mirror_rig, "vast", shared_folder)
    rented = Rented(user, box)
    mine = user.repository("mine", train__py=TRAIN.format("mine"))
    rented.run("setup").must(0)
    theirs = user.repository("theirs", train__py=TRAIN.format("theirs"))
    rented.run("setup").must(0)
    yield Two(rented, mine, theirs)
    box.stop()


def living(rented: Rented) -> list[str]:
    runs = rented.status()["runs"]
    return sorted(run["repository"] for run in runs if run["state"] == "running")


def test_logs_without_a_run_name_shows_the_run_of_the_current_repository(two: Two) -> None:
    for own, name in ((two.mine, "mine"), (two.theirs, "theirs")):
        shown = two.standing_in(own).run("logs").must(0)
        assert shown.out == f"{name} begins\n"
        assert f"train-1 of {name}" in shown.err
    other = two.standing_in(two.mine).run("logs", "--run", "theirs/train-1").must(0)
    assert other.out == "theirs begins\n"
    assert two.standing_in(two.mine).run("logs", "--all").must(0).out == "theirs begins\n"


@pytest.mark.parametrize("name", ["train-1", "mine/train-1", "theirs/train-1"])
@pytest.mark.parametrize("sets", [(), ("--set", "env.ANOTHER=1")])
def test_run_after_waits_for_the_run_of_the_current_repository_or_of_the_one_it_is_named_with(
    two: Two, name: str, sets: tuple[str, ...]
) -> None:
    """Also where it needs a setup first."""
    mine = two.standing_in(two.mine)
    done = mine.run("run", "--session", "next", "--after", name, *sets, "--json", "--", "true")
    begun = done.must(0).json()["run"]
    waits_for = begun["queue"].split()[1]
    mine.run("stop", "--run", begun["name"]).must(0)
    assert begun["state"] == "queued"
    assert re.sub(r"-\w+/", "/", waits_for) == name.removeprefix("mine/")


def test_exec_is_refused_if_only_other_repositories_are_set_up_on_the_box(two: Two) -> None:
    new = two.rented.user.repository("new")
    refused = two.standing_in(new).run("exec", "--", "touch", "was-here").must(2)
    assert "new was not set up on this box; of others it has mine, theirs" in refused.err
    assert two.rented.box.run("find /workspace -name was-here") == ""
    assert two.rented.run("pull", "--all").must(0).out == "no run has begun here\n"


def test_down_refuses_to_lose_work_of_another_repository_and_names_it(two: Two) -> None:
    refused = two.standing_in(two.theirs).run("down").must(9)
    said, _, unsafe = refused.err.partition("as far as is known here, this would be lost:")
    assert "mine (train-1 running)" in said
    assert "theirs" in said
    assert "mine/train-1" in unsafe
    assert living(two.rented) == ["mine", "theirs"]


def test_stop_ends_only_the_run_of_the_current_repository_and_names_it(two: Two) -> None:
    stopped = two.standing_in(two.mine).run("stop").must(0)
    assert "stopped: train-1 of mine" in stopped.out
    assert living(two.rented) == ["theirs"]
    again = two.rented.run("stop").must(0)
    assert f"nothing of mine was running on {two.rented.box.address}" in again.out
    assert "theirs/train-1" in again.out
    named = two.rented.run("stop", "--run", "train-1").must(0)
    assert "mine/train-1 was not running" in named.out
    assert living(two.rented) == ["theirs"]


def test_stop_all_ends_runs_of_other_repositories_too(two: Two) -> None:
    rented = two.standing_in(two.mine)
    stopped = rented.run("stop", "--all", "--json").must(0).json()
    ended = [(run["repository"], run["name"], run["rc"]) for run in stopped["runs"]]
    assert ("theirs", "train-1", 143) in ended
    assert living(rented) == []
    assert rented.trainings() == 0
    # `status` here counts that run, and shows it where it is named.
    assert "theirs/train-1" not in rented.run("status").must(0).out
    assert "theirs/train-1" in rented.run("status", "--run", "theirs/train-1").must(0).out


def test_logs_follow_exits_with_10_if_the_run_failed_and_0_if_it_was_stopped(two: Two) -> None:
    rented = two.standing_in(two.mine)
    two.mine.commit({"train.py": FAILS})
    rented.run("setup").must(0)
    followed = rented.run("logs", "-f").must(10)
    assert followed.out == "step 1 of 9\n"
    last = followed.err.splitlines()[-1]
    assert re.fullmatch(r"train-2 ended with exit code 7 after ([3-9]|\d\d) s", last), followed.err
    lines = rented.run("logs", "-f", "--json").must(10)
    document = json.loads(lines.out.splitlines()[-1])
    assert (document["exit"], document["run"]["rc"], document["run"]["repository"]) == (
        10,
        7,
        "mine",
    )
    # A run that succeeded or was stopped is no failure.
    two.mine.commit({"train.py": "print('done', flush=True)\n"})
    rented.run("setup").must(0)
    followed = rented.run("logs", "-f").must(0)
    assert "train-3 finished after" in followed.err.splitlines()[-1]
    stopped = rented.run("logs", "-f", "--run", "train-1").must(0)
    assert "train-1 was stopped after" in stopped.err.splitlines()[-1]


def test_the_logs_command_that_setup_prints_shows_that_run_from_the_folder_of_another_repository(
    user: User,
) -> None:
    """The user is in another repository's folder, as in the demo."""
    named = user.repository("named").root
    user.repository("stood-in", train__py="print('another')\n")
    done = user.run("setup", "--host", "local", "--repo", str(named)).must(0)
    (follow,) = (line for line in done.out.splitlines() if "logs -f" in line)
    words = shlex.split(follow)
    assert "step 1" in user.run(*words[words.index("logs") :]).must(0).out


def test_a_run_and_exec_have_their_own_repositorys_variables_after_another_was_set_up(
    rented: Rented,
) -> None:
    user = rented.user
    mine = user.repository("mine", boxstrap__yaml=f"{PROFILE}env: {{MODE: mine}}\n")
    rented.run("setup").must(0)
    theirs = user.repository(
        "theirs", boxstrap__yaml=f"{PROFILE}env: {{MODE: theirs, THEIRS: x}}\n"
    )
    rented.run("setup").must(0)
    # A bash that seems to be the first one of an ssh session reads ~/.bashrc once more.
    rented.box.run("sed -i '1i export SHLVL=0' ~/.bashrc")
    rented.box.run("tmux -L boxstrap kill-server")
    user.place = mine.root
    told = 'echo "loss=1 $MODE ${THEIRS-none} $BOXSTRAP_ENTERED"'
    assert "loss=1 mine none" in rented.run("run", "--", told).must(0).out
    assert "loss=1 mine none" in rented.run("exec", "--", told).must(0).out
    # Its results go to that repository, too, wherever they are asked for.
    begun = rented.run("run", "--json", "--", "mkdir out && echo 1 >out/made").must(0).json()
    user.place = theirs.root
    rented.run("pull", "--run", f"mine/{begun['run']['name']}", "--also", "out").must(0)
    assert [len([*each.root.glob("boxstrap-results/**/made")]) for each in (mine, theirs)] == [1, 0]
