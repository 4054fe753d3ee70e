"""The rows that need no root: on an ordinary account of a box, or on this machine."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.faults.plugin import Faults
from tests.main_job.rented import Rented


def test_an_account_without_root(anywhere: Rented, faults: Faults) -> None:
    anywhere.user.repository(requirements__txt="iniconfig>=2\n")
    with faults.attempt("no root, no sudo") as attempt:
        assert "step 1 loss" in anywhere.run("setup").must(0).out
        assert "nothing to do" in anywhere.run("setup").must(0).out
        assert anywhere.runs() == ["train-1"]
        attempt.outcome("works")


def test_a_host_key_that_changed(anywhere: Rented, faults: Faults) -> None:
    anywhere.user.repository()
    anywhere.run("plan").must(0)
    anywhere.box.new_host_key()
    with faults.attempt("changed host key", "setup") as attempt:
        refused = anywhere.run("setup").must(4)
        attempt.noticed(refused.seconds, at_most=20)
        assert anywhere.box.known_fingerprint in refused.err
        assert not anywhere.box.exists(f"{anywhere.box.home}/.boxstrap")
        attempt.outcome("exit 4, nothing sent")


def test_a_key_that_is_refused(anywhere: Rented, faults: Faults) -> None:
    anywhere.user.repository()
    key = anywhere.user.home / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    host = ["--host", anywhere.box.host_string, "--identity", str(key)]
    with faults.attempt("refused key") as attempt:
        refused = anywhere.user.run("setup", *host).must(3)
        attempt.noticed(refused.seconds, at_most=20)
        assert Path(f"{key}.pub").read_text().split()[1] in refused.err
        assert not anywhere.box.exists(f"{anywhere.box.home}/.boxstrap")
        attempt.outcome("exit 3, with the key to add")


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
