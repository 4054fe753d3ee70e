"""A client that goes away, a link that dies, another who is at work: the box goes on, once."""

from __future__ import annotations

import json
import time

import pytest

from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.person import Going, Repository

pytestmark = pytest.mark.boxes

# A package that takes its time: a build that sleeps, so that a setup lasts as long as a test needs.
SLOW = """\
[build-system]
requires = []
build-backend = "slow"
backend-path = ["."]
[project]
name = "slow"
version = "1"
"""
BACKEND = """\
import os, time, zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    limit = time.time() + 60
    while not os.path.exists("/tmp/go-on") and time.time() < limit:
        time.sleep(0.1)
    name = "slow-1-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("slow.py", "")
        about = "Metadata-Version: 2.1\\nName: slow\\nVersion: 1\\n"
        wheel.writestr("slow-1.dist-info/METADATA", about)
        wheel.writestr("slow-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nTag: py3-none-any\\n")
        wheel.writestr("slow-1.dist-info/RECORD", "")
    return name
build_wheel = build_editable
def get_requires_for_build_editable(config_settings=None):
    return []
get_requires_for_build_wheel = get_requires_for_build_editable
"""
LONG = """\
version: 1
gpu: {require: false}
env: {LINGER: "600"}
train: {command: python train.py}
"""


def slow(rented: Rented, name: str = "homework") -> Repository:
    """A repository whose environment is not built before /tmp/go-on is there."""
    return rented.person.repository(
        name, boxstrap__yaml=LONG, pyproject__toml=SLOW, slow__py=BACKEND
    )


def go_on(rented: Rented) -> None:
    rented.box.run("touch /tmp/go-on; chmod 666 /tmp/go-on")


def await_step(rented: Rented, step: str, event: str = "start") -> str:
    """Wait until a setup on the box tells this; its id."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        found = rented.box.run("cat /workspace/.boxstrap/setups/*/events.jsonl 2>/dev/null || true")
        for line in found.splitlines():
            told = json.loads(line)
            if (told["step"], told["event"]) == (step, event):
                return str(told["setup"])
        time.sleep(0.1)
    raise AssertionError(f"no {event} of {step}:\n{found}")


def await_nothing(rented: Rented, pattern: str) -> None:
    """Wait until no process has such a command."""
    limit = time.monotonic() + 10
    while found := rented.box.run(f"pgrep -fa '{pattern}' || true"):
        assert time.monotonic() < limit, found
        time.sleep(0.1)


def setups(rented: Rented) -> list[str]:
    return rented.box.run("ls /workspace/.boxstrap/setups").split()


@pytest.fixture
def at_work(rent: Rent) -> tuple[Rented, Going, str]:
    """A setup in the midst of its step python, somebody who follows it, and its id."""
    rented = rent("vast")
    slow(rented)
    going = rented.begin("setup")
    return rented, going, await_step(rented, "python")


def test_ctrl_c_is_130_and_the_box_goes_on(at_work: tuple[Rented, Going, str]) -> None:
    rented, going, setup = at_work
    going.interrupt()
    done = going.end(20).must(130)
    assert "goes on" in done.err
    assert "stop --setup" in done.err
    assert rented.status()["setup"] == {"id": setup, "state": "at work"}
    # The same command follows the same setup.
    again = rented.begin("setup")
    again.await_said(f"at work already ({setup})")
    go_on(rented)
    followed = again.end().must(0)
    assert "step 1 loss" in followed.out
    assert setups(rented) == [setup]
    assert (rented.runs(), rented.trainings()) == (["train-1"], 1)


def test_a_client_that_is_killed_changes_nothing(at_work: tuple[Rented, Going, str]) -> None:
    rented, going, setup = at_work
    going.kill()
    going.end()
    again = rented.begin("setup")
    again.await_said(f"at work already ({setup})")
    go_on(rented)
    again.end().must(0)
    assert setups(rented) == [setup]
    assert (rented.runs(), rented.trainings()) == (["train-1"], 1)
    assert "nothing to do" in rented.run("setup").must(0).out


def test_a_black_hole_is_outlived(at_work: tuple[Rented, Going, str]) -> None:
    rented, going, setup = at_work
    rented.box.blackhole()
    go_on(rented)
    time.sleep(16)
    rented.box.unblackhole()
    done = going.end(90).must(0)
    assert "link       lost" in done.err
    assert "link       back" in done.err
    assert "step 1 loss" in done.out
    assert done.err.count("python     start") == 1
    assert setups(rented) == [setup]
    assert (rented.runs(), rented.trainings()) == (["train-1"], 1)


def test_an_sshd_that_dies_is_outlived(at_work: tuple[Rented, Going, str]) -> None:
    rented, going, _ = at_work
    rented.box.kill_sshd()
    time.sleep(1)
    rented.box.start_sshd()
    go_on(rented)
    done = going.end(90).must(0)
    assert done.err.count("python     ok") == 1
    assert rented.trainings() == 1


def test_a_setup_that_is_killed_on_the_box_is_told_and_goes_on_when_asked(
    at_work: tuple[Rented, Going, str],
) -> None:
    rented, going, setup = at_work
    rented.box.run(f"pkill -KILL -f setups/{setup}/setup.sh")
    stopped = going.end(60).must(7)
    assert "gone" in stopped.err or "killed" in stopped.err
    go_on(rented)
    rented.run("setup").must(0)
    assert (rented.runs(), rented.trainings()) == (["train-1"], 1)


def test_stop_setup_cancels_it(at_work: tuple[Rented, Going, str]) -> None:
    rented, going, _ = at_work
    stopped = rented.run("stop", "--setup").must(0)
    assert "stopped: setup" in stopped.out
    ended = going.end(30).must(7)
    assert "cancelled" in ended.err
    await_nothing(rented, "[s]low")
    assert "nothing was running" in rented.run("stop", "--setup").must(0).out
    go_on(rented)
    rented.run("setup").must(0)
    assert rented.trainings() == 1


def test_a_box_that_is_busy_with_another_setup_is_8(at_work: tuple[Rented, Going, str]) -> None:
    rented, going, _ = at_work
    first = rented.person.place
    rented.person.repository("other")
    refused = rented.run("setup", "--wait", "1").must(8)
    assert "another setup" in refused.err
    assert refused.seconds < 15
    assert not rented.box.exists("/workspace/other")
    # With patience it is next.
    waiting = rented.begin("setup", "--wait", "60")
    waiting.await_said("setup      ...")
    go_on(rented)
    waiting.end().must(0)
    going.end().must(0)
    assert rented.box.exists("/workspace/other/train.py")
    assert rented.box.exists(f"/workspace/{first.name}/train.py")


def test_a_setup_while_the_box_loses_packets(rent: Rent) -> None:
    rented = rent("vast")
    rented.person.repository()
    rented.box.loss(5)
    done = rented.run("setup").must(0)
    assert "step 1 loss" in done.out
    assert rented.runs() == ["train-1"]
