"""The rows that need no root: on an ordinary account of a box, or on this machine."""

from __future__ import annotations

import time

from tests.faults.plugin import Faults
from tests.main_job.rented import Rented


def test_a_box_account_without_root_is_set_up_and_trains(anywhere: Rented, faults: Faults) -> None:
    anywhere.user.repository(requirements__txt="iniconfig>=2\n")
    with faults.attempt("no root, no sudo") as attempt:
        assert "step 1 loss" in anywhere.run("setup").must(0).out
        assert "nothing to do" in anywhere.run("setup").must(0).out
        assert anywhere.runs() == ["train-1"]
        attempt.outcome("works")


def test_a_setup_whose_client_was_killed_is_finished_by_the_next_and_trains_once(
    anywhere: Rented, faults: Faults
) -> None:
    anywhere.user.repository()
    with faults.attempt("program killed", "agent") as attempt:
        going = anywhere.begin("setup")
        going.await_said("agent      start")
        going.kill()
        going.end()
        anywhere.run("setup").must(0)
        assert anywhere.runs() == ["train-1"]
        attempt.outcome("converged, trained once")


def test_a_setup_goes_on_over_the_new_link_after_the_box_sshd_was_killed_and_started_again(
    anywhere: Rented, faults: Faults
) -> None:
    anywhere.user.repository()
    with faults.attempt("sshd killed", "agent") as attempt:
        going = anywhere.begin("setup")
        going.await_said("agent      start")
        anywhere.box.kill_sshd()
        attempt.begin()
        going.await_said("link       lost")
        attempt.noticed(at_most=20)
        time.sleep(1)
        anywhere.box.start_sshd()
        done = going.end().must(0)
        assert "link       back" in done.err
        assert anywhere.runs() == ["train-1"]
        attempt.outcome("converged, trained once")
