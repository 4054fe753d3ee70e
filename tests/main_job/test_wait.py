"""`wait`: how a run ended, why, and which of the user's commands run; also over a lost link."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from bootstrap.text.sizes import duration
from tests.cli import PROFILE, User
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.waiting import wait_until

LOCAL = (
    "version: 1\nextends: local\nbox: {workdir: ~/box}\nsecrets: [TOKEN]\n"
    "train: {command: python train.py}\n"
)
CRASH = """\
import os, time
print("step 1", flush=True)
while not os.path.exists("go-on"):
    time.sleep(0.05)
raise ValueError("bad token " + os.environ["TOKEN"])
"""
LONG = "import time\nprint('step 1', flush=True)\ntime.sleep(600)\n"
TOLD = 'tell: echo "$BOXSTRAP_MESSAGE|$BOXSTRAP_STATE|$BOXSTRAP_EXIT" >>~/told\nbad: exit 3\n'


def test_a_run_that_fails_is_10_with_its_reason_and_the_persons_commands_are_run(
    user: User,
) -> None:
    notify = user.home / ".config/boxstrap/notify.yaml"
    notify.parent.mkdir(parents=True)
    notify.write_text(TOLD)
    user.repository(boxstrap__yaml="version: 1\n", train__py=CRASH)
    profile = user.home / "elsewhere.yaml"
    profile.write_text(LOCAL)
    setup = ("setup", "--host", "local", "--profile", str(profile))
    made = user.run(*setup, "--set", "box.price=36", TOKEN="hf_abcdefghij").must(0)
    assert re.search(r"setup +ok +[0-9.]+ s, \$0\.[0-9]", made.err)
    waiting = user.begin("wait", "--host", "local", TOKEN="hf_abcdefghij")
    waiting.await_said("must stay awake")
    (user.home / "box/homework/go-on").touch()
    waited = waiting.end().must(10)
    assert "train-1 ended with exit code 1" in waited.err
    assert "| ValueError: bad token [TOKEN hidden]" in waited.out
    told = (user.home / "told").read_text()
    assert told.startswith("local: train-1 ended with exit code 1 after ")
    assert told.endswith("|finished|1\n")
    assert "notify.yaml: bad: it ended with 3" in waited.err
    # The run is already over, so no command runs; the reason is redacted without a value here.
    again = user.run("wait", "--host", "local", "--json").must(10).json()
    assert again["runs"][0]["failure"]["what"] == "ValueError: bad token [TOKEN hidden]"
    assert (user.home / "told").read_text() == told
    shown = user.run("status", "--host", "local").must(0).out
    assert "| ValueError: bad token [TOKEN hidden]" in shown
    # The price is recorded with the box, for every later command: a cent a second.
    assert again["runs"][0]["dollars"] == pytest.approx(again["runs"][0]["seconds"] / 100)
    took = again["runs"][0]["seconds"]
    assert f"{duration(took)}, ${took / 100:.2f}\n" in waited.out
    assert "  $36.00 an hour: about $" in shown
    assert "$36.00 an hour, about $" in user.run("boxes").must(0).out
    assert "hf_" not in waited.text + shown


def test_commands_are_the_persons_own_and_never_a_repositorys(user: User) -> None:
    user.repository(boxstrap__yaml=f"{LOCAL}notify: touch ~/owned\n")
    assert "notify" in user.run("plan", "--host", "local").must(2).err
    file = user.home / ".config/boxstrap/notify.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(TOLD)
    file.chmod(0o666)
    assert "other users can write this file" in user.run("wait", "--host", "local").must(2).err


@pytest.mark.boxes
def test_a_lost_link_is_outlived_and_nothing_of_ours_stays_on_the_box(rent: Rent) -> None:
    rented = rent("vast", used=True)
    rented.user.repository(boxstrap__yaml=PROFILE, train__py=LONG)
    rented.run("setup").must(0)
    ended = rented.begin("wait")
    ended.await_said("waiting for homework/train-1")
    await_waiter(rented, is_there=True)
    ended.interrupt()
    assert "wait on" in ended.end().must(130).err
    await_waiter(rented, is_there=False)

    waited = rented.begin("wait")
    waited.await_said("waiting for homework/train-1")
    rented.box.kill_sshd()
    waited.await_said("lost")
    rented.box.start_sshd()
    rented.run("stop").must(0)
    assert "train-1 was stopped after" in waited.end().must(0).out
    await_waiter(rented, is_there=False)
    assert "nothing runs here" in rented.run("wait", "--all").must(0).out


def await_waiter(rented: Rented, *, is_there: bool) -> None:
    """Wait until the box's waiter is there or gone; each second it checks if anybody listens."""
    waiter: Callable[[], str] = lambda: rented.box.run("pgrep -fx 'sleep 1' || :")  # noqa: E731
    wait_until(lambda: bool(waiter().strip()) == is_there, pause=0.3)
