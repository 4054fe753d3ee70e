"""The rows that need no root: on an ordinary account of a box, or on this machine."""

from __future__ import annotations

import time

from tests.faults.plugin import Faults
from tests.main_job.rented import Rented


def test_an_account_without_root(anywhere: Rented, faults: Faults) -> None:
    anywhere.user.repository(requirements__txt="iniconfig>=2\n")
    with faults.attempt("no root, no sudo") as attempt:
        assert "step 1 loss" in anywhere.run("setup").must(0).out
        assert "nothing to do" in anywhere.run("setup").must(0).out
        assert anywhere.runs() == ["train-1"]
        attempt.outcome("works")


def test_a_client_that_is_killed(anywhere: Rented, faults: Faults) -> None:
    anywhere.user.repository()
    with faults.attempt("program killed", "agent") as attempt:
        going = anywhere.begin("setup")
        going.await_said("agent      start")
        going.kill()
        going.end()
        anywhere.run("setup").must(0)
        assert anywhere.runs() == ["train-1"]
        attempt.outcome("converged, trained once")


def test_an_sshd_that_dies(anywhere: Rented, faults: Faults) -> None:
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
