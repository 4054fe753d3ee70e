"""Two setups at the same time: the same is followed, another waits, a dead one is replaced."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli import LONG, Running
from tests.faults.plugin import Faults
from tests.faults.program import with_numbers
from tests.main_job.rented import Rented
from tests.main_job.slow import await_step, go_on, slow

pytestmark = pytest.mark.sampled(of="module")


@pytest.fixture
def at_work(rented: Rented) -> tuple[Rented, Running, str]:
    """A setup in the middle of its step python, the command that follows it, and its id."""
    slow(rented)
    going = rented.begin("setup")
    return rented, going, await_step(rented, "python")


def holder(rented: Rented) -> int:
    """Return the PID in the lock."""
    return int(rented.box.read("/workspace/.boxstrap/lock").split()[0])


def test_two_versions_of_boxstrap_work_on_one_box_and_the_program_of_a_live_run_is_not_deleted(
    rented: Rented, tmp_path: Path, faults: Faults
) -> None:
    """Each has its program there; a live run keeps the one that it began with until its end."""
    newer = replace(rented, program=with_numbers(tmp_path, LOCK_PATIENCE_S=299))
    box, programs = rented.box, f"{rented.folder}/box"

    def there() -> set[str]:
        box.run(f"touch -d '1 hour ago' {programs}/*/")
        return {name for name in box.folders(programs) if name != "current"}

    with faults.attempt("two versions at once"):
        mine = rented.user.repository(boxstrap__yaml=LONG)
        rented.run("setup").must(0)
        older = box.real(f"{programs}/current").rpartition("/")[2]
        # A plan asks nothing of the program that is there: it may be too old to have an answer.
        box.run(f"mv {programs}/{older}/onbox {programs}/{older}/away")
        said = newer.run("plan", "--json").must(0).json()["steps"]
        assert {row["why"] for row in said} <= {"done", "alive", "not-asked"}
        box.run(f"mv {programs}/{older}/away {programs}/{older}/onbox")
        rented.user.repository("other", boxstrap__yaml=LONG)
        newer.run("setup").must(0)
        own = box.real(f"{programs}/current").rpartition("/")[2]
        assert own != older
        assert there() == {own, older}
        rented.user.place = mine.root
        said = rented.run("plan", "--json").must(0).json()["steps"]
        assert {row["why"] for row in said} <= {"done", "alive", "not-asked"}
        # The newer client changes this repository too: only the live run still names the older.
        newer.run("setup", "--set", "env.A=1").must(8)
        assert there() == {own, older}
        assert f"{programs}/{older}/" in box.run("pgrep -af runs.runner")
        assert rented.trainings() == 2  # the other repository's too
        rented.run("stop").must(0)
        # If it began, it watches the other run.
        box.run(f"pkill -f '{older}/onbox/__main__.py runs.monitor'", check=False)
        newer.run("setup", "--set", "env.A=2").must(0)
        assert there() == {own}
        box.run(f"rm {programs}/current")  # as a version without digests left its runs
        assert "`boxstrap setup` brings what reads them" in newer.run("status").must(5).err
        newer.run("setup", "--set", "env.A=2").must(0)
        assert own in box.real(f"{programs}/current")


@pytest.mark.parametrize("left", ["steps that hold the lock", "a uv that holds nothing"])
def test_processes_left_by_a_killed_setup_are_ended_by_the_next_setup(
    at_work: tuple[Rented, Running, str], faults: Faults, left: str
) -> None:
    rented, going, setup = at_work
    await_it = "until pgrep -f 'uv pip install .*-e [.] --exact$'; do sleep 0.05; done"
    building = rented.box.run(await_it).split()
    with faults.attempt(f"lock whose holder died, {left}"):
        if left.startswith("steps"):
            rented.box.run(f"kill -9 {holder(rented)}")
        else:
            rented.box.run(f"pkill -9 -f setups/{setup}/setup.sh")
        going.end().must(7)
        alive = f"ps -o comm= -p {','.join(building)} || true"
        assert rented.box.run(alive).split() == ["uv"]
        rented.user.repository("other")
        rented.run("setup", "--wait", "20").must(0)
        assert rented.box.run(alive) == ""
        assert rented.box.exists("/workspace/other/train.py")


def test_setup_after_a_box_restart_kills_no_process_that_got_the_pid_of_the_lost_setup(
    at_work: tuple[Rented, Running, str], faults: Faults
) -> None:
    rented, going, _ = at_work
    with faults.attempt("lock whose holder died with the box, its number used again"):
        number = holder(rented)
        going.kill()
        going.end()
        rented.box.power_off()
        rented.box.power_on()
        go_on(rented)
        # An unrelated session that has the same PID.
        rented.box.run(
            "while :; do setsid sleep 600 >/dev/null 2>&1 & "
            f"[ $! -lt {number} ] || break; kill $!; done; [ $! = {number} ]"
        )
        rented.run("setup").must(0)
        assert rented.box.run(f"cat /proc/{number}/comm").strip() == "sleep"
        assert (rented.runs(), rented.trainings()) == (["train-1"], 1)
