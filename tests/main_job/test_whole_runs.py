"""A run is ended as a whole, with processes in their own sessions; those that survive are named."""

import pytest

from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented

pytestmark = pytest.mark.sampled(of="module")

# In their own sessions: a child, an orphan, one without our mark, one that ignores SIGTERM.
SCATTERED = """\
import os, subprocess, sys, time
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(700.1)"
subprocess.Popen(["sleep", "700.2"], start_new_session=True)
subprocess.Popen(["sh", "-c", "setsid sleep 700.3 & exit 0"], start_new_session=True).wait()
bare = subprocess.Popen(["sleep", "700.4"], start_new_session=True, env={})
subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
print("step 1", flush=True)
time.sleep(600)
"""
SCATTER = "pgrep -fa '[7]00[.][1234]|bin/python [t]rain.py' || true"


def alive(rented: Rented) -> list[str]:
    """The command lines of the run's processes that are alive."""
    return [line.partition(" ")[2] for line in rented.box.run(SCATTER).splitlines()]


@pytest.mark.parametrize("kind", ["vast", "nosudo"])
def test_stop_also_ends_processes_of_a_run_that_detached_into_their_own_unix_session(
    rent: Rent, kind: str, faults: Faults
) -> None:
    with faults.attempt("processes of a run in sessions of their own", kind):
        rented = rent(kind, used=kind == "vast")
        rented.user.repository(train__py=SCATTERED)
        begun = rented.run("setup").must(0)
        # Only commands that work there are recommended: without tmux, no `attach`.
        assert ("boxstrap attach" in begun.out) == (kind == "vast")
        assert "boxstrap logs -f" in begun.out
        assert "train-1: waiting up to 30 s for its first line" in begun.err
        assert len(alive(rented)) == 5
        stopped = rented.run("stop", "--json").must(0).json()
        assert (stopped["stopped"], stopped["left"]) == (["train-1"], [])
        assert alive(rented) == []
        (run,) = rented.status()["runs"]
        assert (run["rc"], run["ended"]) == (143, "stop")


def test_stop_ends_processes_left_by_a_finished_run_and_all_in_a_live_runs_cgroup(
    rented: Rented,
) -> None:
    begin = "subprocess.Popen(['sleep', '700.2'], start_new_session=True)"
    train = f"import subprocess\n{begin}\nprint('step 1')\n"
    repository = rented.user.repository(train__py=train)
    rented.run("setup").must(0)
    assert "finished; 1 of its processes live on" in rented.run("status").must(0).out
    assert rented.run("stop", "--json").must(0).json()["stopped"] == ["train-1"]
    assert alive(rented) == []
    assert "nothing was running" in rented.run("stop").must(0).out
    assert "homework/train-1  finished  " in rented.run("status").must(0).out
    rented.box.run("mkdir /cgroups && mount -t cgroup2 none /cgroups")
    # Without mark, parent or session: only its cgroup shows which run it belongs to.
    train = SCATTERED.replace('["sleep", "700.4"]', '["sh", "-c", "setsid sleep 700.4 & exit 0"]')
    repository.write({"train.py": train})
    rented.run("run").must(0)
    group = rented.as_user(f"cat {rented.folder}/runs/*/train-2/cgroup").strip()
    # Plus the shell of its command.
    assert len(rented.box.read(f"{group}/cgroup.procs").split()) == len(alive(rented)) + 1 == 6
    rented.run("stop").must(0)
    assert alive(rented) == []
    assert not rented.box.exists(group)


def test_stop_names_a_process_of_a_run_that_it_could_not_end(rent: Rent) -> None:
    rented = rent("lambda")
    root = "['sudo', '-n', 'setsid', 'sh', '-c', 'trap : TERM HUP; while :; do sleep 700.2; done']"
    train = f"import subprocess, time\nsubprocess.Popen({root})\nprint('step 1', flush=True)\n"
    rented.user.repository(train__py=f"{train}time.sleep(600)\n")
    rented.run("setup").must(0)
    for _ in range(2):  # the second stop does not report it as ended either
        stopped = rented.run("stop", "--json").must(7).json()
        assert stopped["stopped"] == ["train-1"]
        assert {(run, user) for run, _, user, _ in stopped["left"]} == {("train-1", "root")}
        for _, number, _, program in stopped["left"]:
            assert f"\n  train-1: process {number} ({program}, of root)" in stopped["error"]["what"]
    assert "was stopped; " in rented.run("status").must(0).out
    rented.box.run("pkill -9 -f '[s]leep 700.2'")
    assert "nothing was running" in rented.run("stop").must(0).out
