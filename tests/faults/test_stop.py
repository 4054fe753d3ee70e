"""Stop a run whose main process saves its work, and needs its helpers until it has done so."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bootstrap.link.query import ask
from tests.faults.plugin import Faults
from tests.main_job.rented import Rented
from tests.unit.onbox.test_runner import begin, was
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.sampled(of="module")

TRAIN = """\
import multiprocessing, os, signal, sys, time
from pathlib import Path

asked = []

def load(batches):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        batches.put(0)

if __name__ == "__main__":
    batches = multiprocessing.Queue(2)
    workers = [multiprocessing.Process(target=load, args=(batches,), daemon=True) for _ in "ab"]
    for worker in workers:
        worker.start()
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    helper = int(Path("helper").read_text()) if Path("helper").exists() else None
    Path(f"up.{os.environ.get('RANK', 0)}").touch()
    while not asked:
        batches.get(timeout=60)
        time.sleep(0.01)  # a step
    time.sleep(1)  # the step that is under way
    if helper:
        os.kill(helper, 0)
    for _ in range(8):
        batches.get(timeout=60)
    if not all(worker.is_alive() for worker in workers):
        sys.exit("a worker was killed")
    print("saving", flush=True)
    if len(asked) > 1:
        sys.exit("asked twice")
    Path(f"saved.{os.environ.get('RANK', 0)}").touch()
"""
LAUNCHER = """\
import os, signal, subprocess, sys
ranks = [
    subprocess.Popen(
        [sys.executable, "train.py"], env={**os.environ, "RANK": rank}, start_new_session=True
    )
    for rank in "01"
]
signal.signal(signal.SIGTERM, lambda *_: [rank.terminate() for rank in ranks])
sys.exit(max(rank.wait() for rank in ranks))
"""
FILES = {
    "train.py": TRAIN,
    "launch.py": LAUNCHER,
    "wrap.py": "import subprocess, sys; sys.exit(subprocess.call([sys.executable, 'train.py']))",
    "run.sh": "python train.py\ntouch after\n",
    "logged.sh": "#!/bin/bash\nexec > >(tee out.txt) 2>&1\npython train.py\ntouch after\n",
    "outer.sh": "sh run.sh\ntouch after\n",
}
SAVED = ("0", 1)
"""Exit code, and how many processes saved."""
ENDED = ("143", 1)
"""The same if a shell between the run and its program was asked too: the code is that shell's."""
COMMANDS = {
    "python train.py": SAVED,
    "cd . && python train.py; touch after": SAVED,
    "bash -c 'python train.py; touch after'": ENDED,
    "sh run.sh": ENDED,
    "sh outer.sh; touch after": ENDED,
    "./logged.sh": ENDED,
    "python train.py 2>&1 | tee out.txt; touch after": SAVED,
    "(python train.py; touch after) 2>&1 | tee out.txt | cat": ENDED,
    "yes | python train.py": ENDED,
    "python train.py & wait": ENDED,
    "python launch.py": ("0", 2),
    "sh -c 'python launch.py; touch after'": ("143", 2),
    "python wrap.py": ENDED,
    "timeout 60 python train.py": SAVED,
    # Started before it, by the same command, and detached: no child of the training.
    "setsid sh -c 'sleep 600 & echo $! >helper' && python train.py": SAVED,
    "uv run --no-project python train.py": SAVED,
}


def by_runner(folder: Path, run: Path, runner: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C in its window."""
    runner.send_signal(signal.SIGTERM)


def by_query(folder: Path, run: Path, runner: subprocess.Popen[bytes]) -> None:
    """As `stop`, `down` and guard; the lease starts the same program."""
    text = ask("run_processes", {"runs": "homework/train-1"}, workdir=str(folder))
    subprocess.run(["sh", "-c", text], check=True, capture_output=True)


def without_runner(folder: Path, run: Path, runner: subprocess.Popen[bytes]) -> None:
    """As `stop`, after its runner was killed."""
    runner.kill()
    runner.wait()
    by_query(folder, run, runner)


WAYS: dict[str, Callable[[Path, Path, subprocess.Popen[bytes]], None]] = {
    "its window": by_runner,
    "stop": by_query,
    "stop without a runner": without_runner,
}


def stopped(folder: Path, command: str, way: str) -> tuple[tuple[str, int], float]:
    """Stop it once it is up; return exit code and how many saved, and how long it took."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    (folder / "logged.sh").chmod(0o755)
    path = f"{Path(sys.executable).parent}"
    run, runner = begin(folder, f'PATH="{path}:$PATH"; {command}')
    (run / "grace").write_text("90\n")
    wait_until(lambda: len(list(folder.glob("up.*"))) == 1 + command.count("launch"))
    began = time.monotonic()
    WAYS[way](folder, run, runner)
    runner.wait(PATIENCE_S)
    took = time.monotonic() - began
    assert not (folder / "after").exists()
    return (was(run, "exit"), len(list(folder.glob("saved.*")))), took


@pytest.mark.parametrize("command", COMMANDS)
def test_a_stopped_run_keeps_its_helper_processes_until_its_main_process_has_saved(
    command: str, tmp_path: Path, faults: Faults
) -> None:
    with faults.attempt("stopped while it works with helpers", at=command) as attempt:
        outcome, took = stopped(tmp_path, command, "its window")
        assert outcome == COMMANDS[command]
        assert took < 60  # nobody waited for the grace to be used
        attempt.outcome("saved")


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_stop_a_run_asks_its_main_process_first_so_that_it_saves(
    way: str, tmp_path: Path, faults: Faults
) -> None:
    with faults.attempt("stopped while it works with helpers", at=way) as attempt:
        (code, saved), _ = stopped(tmp_path, "exec python train.py", way)
        assert (code, saved) == ({"stop without a runner": "143"}.get(way, "0"), 1)
        attempt.outcome("saved")


def test_setup_with_restart_and_a_cancelled_setup_let_the_main_process_of_a_training_save(
    rented: Rented, faults: Faults
) -> None:
    profile = "version: 1\ngpu: {require: false}\ntrain: {command: python train.py, grace: 15}\n"
    repository = rented.user.repository(boxstrap__yaml=profile, train__py=TRAIN)
    tree = f"/workspace/{rented.user.place.name}"
    with faults.attempt("stopped while it works with helpers", at="--restart") as attempt:
        rented.run("setup").must(0)
        rented.box.run(f"until [ -e {tree}/up.0 ]; do sleep 0.1; done")
        rented.run("setup", "--restart").must(0)
        assert rented.box.exists(f"{tree}/saved.0")
        assert [run["rc"] for run in rented.status()["runs"]] == [None, 0]
        rented.run("stop").must(0)
        attempt.outcome("saved")
    for name in ("up.0", "saved.0"):
        rented.box.run(f"rm {tree}/{name}")
    with faults.attempt("stopped while it works with helpers", at="stop --setup") as attempt:
        repository.commit({"boxstrap.yaml": f"{profile}prepare: [python train.py]\n"})
        going = rented.begin("setup")
        rented.box.run(f"until [ -e {tree}/up.0 ]; do sleep 0.1; done")
        going.interrupt()  # which leaves it at work
        assert "to cancel it: boxstrap stop --setup" in going.end().must(130).err
        following = rented.begin("setup")
        following.await_said("already running")
        told = rented.run("stop", "--all").must(0)
        assert "a setup is at work there, and may begin a run" in told.err
        assert "stopped: setup" in rented.run("stop", "--setup").must(0).out
        assert rented.box.exists(f"{tree}/saved.0")
        assert "cancelled" in following.end().must(7).err
        assert "nothing was running" in rented.run("stop", "--setup").must(0).out
        attempt.outcome("saved")
