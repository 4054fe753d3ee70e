"""A client that goes away, a lost link, a second client: the box continues, and works once."""

from __future__ import annotations

import time

import pytest

from tests.cli import Running
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.main_job.slow import await_nothing, await_step, go_on, setups, slow

pytestmark = [pytest.mark.boxes, pytest.mark.sampled(of="module")]


@pytest.fixture
def at_work(rent: Rent) -> tuple[Rented, Running, str]:
    """A box with a setup in the middle of its step python, the client that follows it, its id."""
    rented = rent("vast", used=True)
    slow(rented)
    going = rented.begin("setup")
    return rented, going, await_step(rented, "python")


def test_ctrl_c_is_130_and_the_box_goes_on(at_work: tuple[Rented, Running, str]) -> None:
    rented, going, setup = at_work
    going.interrupt()
    done = going.end().must(130)
    assert "continues" in done.err
    assert "stop --setup" in done.err
    assert rented.status()["setup"] == {"id": setup, "state": "at work"}
    # The same command follows the same setup.
    again = rented.begin("setup")
    again.await_said(f"already running ({setup})")
    go_on(rented)
    followed = again.end().must(0)
    assert "step 1 loss" in followed.out
    assert setups(rented) == [setup]
    assert (rented.runs(), rented.trainings()) == (["train-1"], 1)


def test_a_client_that_is_killed_changes_nothing(at_work: tuple[Rented, Running, str]) -> None:
    rented, going, setup = at_work
    going.kill()
    going.end()
    again = rented.begin("setup")
    again.await_said(f"already running ({setup})")
    go_on(rented)
    again.end().must(0)
    assert setups(rented) == [setup]
    assert (rented.runs(), rented.trainings()) == (["train-1"], 1)
    assert "nothing to do" in rented.run("setup").must(0).out


def test_a_black_hole_is_outlived(at_work: tuple[Rented, Running, str]) -> None:
    rented, going, setup = at_work
    rented.box.blackhole()
    go_on(rented)
    going.await_said("link       lost")
    rented.box.unblackhole()
    done = going.end().must(0)
    assert "link       back" in done.err
    assert "step 1 loss" in done.out
    assert done.err.count("python     start") == 1
    assert setups(rented) == [setup]
    assert (rented.runs(), rented.trainings()) == (["train-1"], 1)


def test_an_sshd_that_dies_is_outlived(at_work: tuple[Rented, Running, str]) -> None:
    rented, going, _ = at_work
    rented.box.kill_sshd()
    time.sleep(1)
    rented.box.start_sshd()
    go_on(rented)
    done = going.end().must(0)
    assert done.err.count("python     ok") == 1
    assert rented.trainings() == 1


def test_a_setup_that_is_killed_on_the_box_is_told_and_goes_on_when_asked(
    at_work: tuple[Rented, Running, str],
) -> None:
    rented, going, setup = at_work
    rented.box.run(f"pkill -KILL -f setups/{setup}/setup.sh")
    stopped = going.end().must(7)
    assert "gone" in stopped.err or "killed" in stopped.err
    go_on(rented)
    rented.run("setup").must(0)
    assert (rented.runs(), rented.trainings()) == (["train-1"], 1)


def test_stop_setup_cancels_it(at_work: tuple[Rented, Running, str]) -> None:
    rented, going, _ = at_work
    stopped = rented.run("stop", "--setup").must(0)
    assert "stopped: setup" in stopped.out
    ended = going.end().must(7)
    assert "cancelled" in ended.err
    await_nothing(rented, "[s]low")
    assert "nothing was running" in rented.run("stop", "--setup").must(0).out
    go_on(rented)
    rented.run("setup").must(0)
    assert rented.trainings() == 1


def test_a_setup_while_the_box_loses_packets(rent: Rent) -> None:
    rented = rent("vast", used=True)
    rented.user.repository()
    rented.box.loss(5)
    done = rented.run("setup").must(0)
    assert "step 1 loss" in done.out
    assert rented.runs() == ["train-1"]
