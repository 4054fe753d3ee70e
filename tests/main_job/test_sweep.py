"""A sweep over several boxes: each cell finishes once, and the same line again repairs it."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.boxes import Rig, RigBox
from tests.cli import Completed, User
from tests.main_job.conftest import Card
from tests.main_job.rented import Rented, SeveralBoxes
from tests.main_job.settled import Settled
from tests.main_job.used import start_used
from tests.nvml import scenarios
from tests.plain_environment import BIN, HERE
from tests.programs import captured
from tests.waiting import wait_until

pytestmark = pytest.mark.sampled(of="module")

TRAIN = """\
import os, sys, time
given = dict(word.lstrip("-").split("=") for word in sys.argv[1:])
for step in range(1, 4):
    print(f"step {step} loss {float(given['lr']) / step}", flush=True)
    time.sleep(float(os.environ.get("STEP_S", "0.1")))
while os.path.exists("/root/hold"):
    time.sleep(0.1)
if os.path.exists("/root/broken"):
    sys.exit(3)
job = [os.environ[name] for name in ("BOXSTRAP_JOB_RANK", "SKYPILOT_NUM_JOBS")]
with open("/root/cells", "a") as cells:
    cells.write(" ".join([*sys.argv[1:], *job]) + "\\n")
time.sleep(float(os.environ.get("STEP_S", "0.1")))  # a box may die before its record has the end
"""
SWEEP = "parameters:\n  lr: [0.1, 0.2]\n  seed: [{}]\n"
Fleet = Callable[..., "SweepBoxes"]


class SweepBoxes(SeveralBoxes):
    """A user's boxes gpu-0, gpu-1, …, and a sweep over them."""

    def sweep(self, *words: str) -> Completed:
        return self.run("run", "--host", "gpu-*", "--sweep", "lr.yaml", *words)

    def until_finished(self, cells: int, seconds: float = 120) -> None:
        """Call the same line until all cells are finished."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            done = self.sweep("--json")
            told = done.json().get("sweep", {})
            if len(told.get("finished", ())) == cells:
                return
            time.sleep(1)
        raise AssertionError(done.text)

    def finished(self) -> Counter[str]:
        """How often each cell ended with 0, by the records of all boxes."""
        found: Counter[str] = Counter()
        ended = (
            "cd /workspace/.boxstrap/runs; grep -lx 0 */*/exit | sed s/exit$/command/ | xargs cat"
        )
        for box in self.boxes.values():
            found.update(line.partition("train.py ")[2] for line in box.run(ended).splitlines())
        return found


@pytest.fixture
def fleet(mirror_rig: Rig, shared_folder: Path, user: User) -> Iterator[Fleet]:
    boxes: dict[str, RigBox] = {}

    def start(count: int, seeds: int, **env: str) -> SweepBoxes:
        for at in range(count):
            boxes[f"gpu-{at}"] = start_used(mirror_rig, "vast", shared_folder)
        numbers = ", ".join(map(str, range(seeds)))
        values = "".join(f"  {name}: '{value}'\n" for name, value in env.items())
        user.repository(
            "seeds",
            train__py=TRAIN,
            lr__yaml=SWEEP.format(numbers),
            boxstrap__yaml="version: 1\ngpu: {require: false}\ntrain: {command: python train.py}\n"
            + (f"env:\n{values}" if env else ""),
        )
        found = SweepBoxes(user, boxes)
        for name, box in boxes.items():
            found.run("plan", "--host", box.host_string, "--name", name).must(0)
        return found

    yield start
    for box in boxes.values():
        box.stop()


def test_each_cell_of_a_sweep_runs_to_its_end_exactly_once_though_boxes_restart_or_lose_their_link(
    fleet: Fleet, request: pytest.FixtureRequest
) -> None:
    whole = request.config.getoption("every")
    count, seeds, cut_s = (4, 12, 120) if whole else (2, 3, 6)
    boxes = fleet(count, seeds, STEP_S="0.7")
    first = boxes.begin("run", "--host", "gpu-*", "--sweep", "lr.yaml")
    time.sleep(4)
    first.kill()
    first.close()
    boxes.sweep()
    killed, cut = boxes.boxes["gpu-0"], boxes.boxes["gpu-1"]
    cut.cut()
    killed.power_off()
    killed.power_on()
    again = boxes.sweep("--json")
    assert again.rc == 3, again.text  # the cut one keeps its cells
    assert not any(one["box"] == "gpu-1" for one in again.json()["sweep"]["queued"])
    time.sleep(cut_s)
    cut.heal()
    boxes.until_finished(2 * seeds, 600)
    last = boxes.sweep("--json").must(0).json()["sweep"]
    assert last["queued"] == last["live"] == last["held"] == []
    assert set(boxes.finished().values()) == {1}
    assert len(boxes.finished()) == 2 * seeds
    lines = {
        line for box in boxes.boxes.values() for line in box.run("cat /root/cells").split("\n")
    }
    ranks = sorted(line.split()[2:] for line in lines - {""})  # a cell's rank stays its own
    assert ranks == sorted([str(rank), str(2 * seeds)] for rank in range(2 * seeds))


WORKER = """\
import os, optuna, wandb
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

rank = os.environ["BOXSTRAP_JOB_RANK"]
storage = JournalStorage(JournalFileBackend("/workspace/journal.log"))
study = optuna.create_study(study_name="x", storage=storage, load_if_exists=True)
with wandb.init(project="x", mode="offline", name=rank, config={"rank": rank}) as run:
    def objective(trial):
        x = trial.suggest_float("x", -1, 1)
        run.log({"loss": x * x})
        return x * x
    study.optimize(objective, n_trials=4)
gpu, jobs = os.environ["CUDA_VISIBLE_DEVICES"], os.environ["SKYPILOT_NUM_JOBS"]
print("gpu", gpu, "rank", rank, "of", jobs)
"""
SEEN = "import optuna, sys; print(len(optuna.load_study(study_name='x', storage=\
optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend('/workspace/journal.log'))).trials))"


def test_run_with_each_gpu_starts_one_worker_for_each_gpu(
    mirror_rig: Rig, shared_folder: Path, user: User, card: Card
) -> None:
    box = start_used(mirror_rig, "vast", shared_folder)
    try:
        rented = Rented(user, box)
        card(rented, f"{scenarios.A100}\ncount = 2")
        user.repository(
            "search",
            worker__py=WORKER,
            requirements__txt="optuna\nwandb\n",
            boxstrap__yaml="version: 1\ngpu: {count: 2, smoke: none}\n",
        )
        rented.run("setup").must(0)
        begun = rented.run("run", "--each-gpu", "--session", "w", "--", "python worker.py").must(0)
        assert "queued 2: w-1, w-2" in begun.out
        rented.run("wait", "--all").must(0)
        said = [rented.run("logs", "--run", name).out.splitlines()[-1] for name in ("w-1", "w-2")]
        assert sorted(said) == ["gpu 0 rank 0 of 2", "gpu 1 rank 1 of 2"]
        trials = rented.run("exec", "--", "python", "-c", SEEN).must(0)
        assert trials.out.splitlines()[-1] == "8"
        assert box.run("ls -d /workspace/search*/wandb/offline-run-* | wc -l").strip() == "2"
    finally:
        box.stop()


OBJECTIVE = """\
import os

def objective(trial):
    x = trial.suggest_float("x", -1, 1)
    trial.set_user_attr("worker", [os.uname().nodename, os.environ["BOXSTRAP_JOB_RANK"]])
    return x * x
"""
TRIALS = """\
import json, optuna
study = optuna.load_study(study_name="lr", storage="sqlite:///study.db")
by = [trial.user_attrs["worker"] for trial in study.trials]
print(json.dumps([[t.number, t.state.name, t.value, *w] for t, w in zip(study.trials, by)]))
"""
LISTENS = "awk '$4 == \"0A\" && /:32C8 / {print $2}' /proc/net/tcp /proc/net/tcp6"  # at 13000
LOOPBACK = {"0100007F:32C8", f"{'0' * 24}01000000:32C8"}
PACKAGES = ("optuna", "grpcio", "protobuf")


@pytest.fixture
def settled() -> Iterator[Settled]:
    made = Settled()
    made.env["BOXSTRAP_KEEP_OPEN"] = "2m"  # as users have it: their ssh finds an open connection
    yield made
    made.leave()


def test_the_documented_optuna_study_is_shared_by_workers_on_two_boxes_over_tunnels(
    mirror_rig: Rig,
    shared_folder: Path,
    card: Card,
    settled: Settled,
    request: pytest.FixtureRequest,
) -> None:
    """Types the lines of docs/sweeps.md and runs its two programs, as they stand there."""
    if not request.config.getoption("every"):
        pytest.skip("make chaos")
    text = (HERE / "docs/sweeps.md").read_text().partition("For several boxes")[2]
    server, worker, lines = re.findall(r"```\n(.+?)```", text, re.DOTALL)[:3]
    uv = {**os.environ, "UV_SYSTEM_CERTS": "1", "UV_NO_CONFIG": "1"}
    here = settled.home / "venv"
    for words in (["venv", "--python", sys.executable, here], ["pip", "install", *PACKAGES]):
        subprocess.run([BIN / "uv", "-q", *words], env={**uv, "VIRTUAL_ENV": str(here)}, check=True)
    settled.repository(
        "search",
        __gitignore="study.db*\n",
        storage__py=server,
        worker__py=worker,
        train__py=OBJECTIVE,
        requirements__txt="\n".join(PACKAGES),
        boxstrap__yaml="version: 1\ngpu: {count: 2, smoke: none}\n",
    )
    groups = Path(settled.env["XDG_CONFIG_HOME"]) / "boxstrap/groups.yaml"
    groups.parent.mkdir(parents=True)
    groups.write_text("seeds: [gpu-1, gpu-2]\n")
    boxes = {name: start_used(mirror_rig, "vast", shared_folder) for name in ("gpu-1", "gpu-2")}
    typing = None
    try:
        for name, box in boxes.items():
            card(Rented(settled, box), f"{scenarios.A100}\ncount = 2")
            Rented(settled, box).run("setup", "--name", name).must(0)
        before, kill, after = lines.partition("kill ")
        waits = "touch worked; until [ -e seen ]; do sleep 0.1; done\n"
        with (settled.home / "said").open("w") as out:
            typing = subprocess.Popen(
                settled.inside("bash", "-ec", before + waits + kill + after),
                cwd=settled.place,
                env={**settled.env, "PATH": f"{here}/bin:{settled.env['PATH']}"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        said = (settled.home / "said").read_text
        going = typing
        wait_until(lambda: (settled.place / "worked").exists() or going.poll() is not None, said)
        assert going.poll() is None, said()
        for box in boxes.values():
            assert set(box.run(LISTENS).split()) == LOOPBACK, said()
        (settled.place / "seen").touch()
        assert going.wait(60) == 0, said()
        read = [str(here / "bin/python"), "-c", TRIALS]
        done = captured(read, cwd=settled.place)
        trials = json.loads(done.stdout)
        assert sorted(number for number, *_ in trials) == [*range(80)]
        assert {state for _, state, *_ in trials} == {"COMPLETE"}
        by = Counter((box, rank) for *_, box, rank in trials)
        names = [boxes[name].name for name in ("gpu-1", "gpu-1", "gpu-2", "gpu-2")]
        assert by == {(name, str(rank)): 20 for rank, name in enumerate(names)}
        assert str(min(value for _, _, value, *_ in trials)) in said().partition("| number")[2]
    finally:
        if typing:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(typing.pid, signal.SIGTERM)
            typing.wait()
        for box in boxes.values():
            box.stop()
