"""Another package manager at work on the box: waited for, named, and left alone."""

from dataclasses import replace
from pathlib import Path

from tests.boxes import Rig
from tests.cli import User
from tests.faults.plugin import Faults
from tests.faults.program import with_numbers
from tests.main_job.rented import Rented

HOLDER = "unattended-upgr"


def test_setup_fails_naming_a_process_that_keeps_the_package_lock_of_the_box_and_does_not_kill_it(
    mirror_rig: Rig, tmp_path: Path, faults: Faults
) -> None:
    """On a box whose tools have to be installed."""
    rented = Rented(User(tmp_path / "home"), mirror_rig.start("runpod"))
    rented.user.repository()
    with faults.attempt("dpkg's lock held for ever") as attempt:
        holder = rented.box.hold_dpkg_lock()
        impatient = replace(rented, program=with_numbers(tmp_path, LOCK_PATIENCE_S=5))
        failed = impatient.run("setup").must(7)
        assert "the step tools failed: another run of the package manager" in failed.err
        assert f"(process {holder})" in failed.err
        assert f"process {holder} ({HOLDER}) has held the lock" in failed.err
        assert f"{holder}\n" in rented.box.run("pgrep -f unattended-upgr")  # still alive
        assert not rented.box.exists(f"{rented.folder}/steps/tools.ok")
        rented.box.run(f"kill {holder}")
        attempt.outcome("named, exit 7; then finished")
        held_for_a_while(rented, faults)
    rented.box.stop()


def held_for_a_while(rented: Rented, faults: Faults) -> None:
    with faults.attempt("dpkg's lock held for a while") as attempt:
        holder = rented.box.hold_dpkg_lock(20)
        attempt.begin()
        going = rented.begin("setup")
        going.await_said(
            f"another run of the package manager (process {holder}) holds dpkg's lock", 30
        )
        attempt.noticed(at_most=20)
        done = going.end().must(0)
        assert done.seconds > 12
        assert "step 1 loss" in done.out
        log = rented.run("logs", "--step", "tools").must(0).out
        assert f"process {holder} ({HOLDER}) holds the lock" in log
        assert rented.box.exists("/usr/bin/tmux")
        attempt.outcome("waited for")


def test_setup_finishes_a_package_run_that_was_cut_short_as_a_user_with_sudo(
    mirror_rig: Rig, tmp_path: Path, faults: Faults
) -> None:
    rented = Rented(User(tmp_path / "home"), mirror_rig.start("lambda"))
    rented.user.repository()
    with faults.attempt("a package is unpacked, not configured") as attempt:
        rented.box.run("apt-get remove -y tmux; apt-get update; apt-get install -y -d tmux")
        rented.box.run("dpkg --unpack /var/cache/apt/archives/tmux*.deb")
        rented.run("setup").must(0)
        assert rented.box.run("dpkg --audit") == ""
        attempt.outcome("finished")
    rented.box.stop()
