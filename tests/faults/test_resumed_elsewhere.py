"""A box is destroyed at some moment of its training, while `pull --watch` brings home what it
saves: the run goes on on another box, from a checkpoint that is whole, and never from a half one.

Two boxes take turns: the one that was destroyed comes back empty, as the next one that never had
the run. Each checkpoint is three files in a folder of its own, and two that are written in place;
each file ends with its own digest, and the training says what it found when it goes on.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli import Running
from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.waiting import wait_until

pytestmark = pytest.mark.boxes

PROFILE = """\
version: 1
gpu: {require: false}
train: {command: python train.py, resume: python train.py --resume, results: [out/]}
"""
TRAIN = """\
import hashlib, os, sys, time
from pathlib import Path

out, step = Path("out"), 0
out.mkdir(exist_ok=True)
PARTS, SHARDS = ("a.pt", "b.pt", "c.pt"), ("model-00001-of-00002.pt", "model-00002-of-00002.pt")


def write(path, step):
    body = f"{step} ".encode() + os.urandom(400_000)
    with open(path, "wb", buffering=0) as file:
        for piece in (body[:200_000], body[200_000:], hashlib.sha256(body).hexdigest().encode()):
            file.write(piece)
            time.sleep(0.05)


def step_of(paths):
    steps = set()
    for path in paths:
        body = path.read_bytes() if path.exists() else b""
        sound = hashlib.sha256(body[:-64]).hexdigest().encode() == body[-64:]
        steps.add(int(body.split(b" ", 1)[0]) if sound else -1)
    return steps.pop() if len(steps) == 1 else -1


if "--resume" in sys.argv:
    newest = max(out.glob("checkpoint-*"), key=lambda one: int(one.name[11:]))
    step = int(newest.name[11:])
    shards = [out / name for name in SHARDS]
    states = [step_of([newest / name for name in PARTS]) == step]
    states.append(not any(one.exists() for one in shards) or step_of(shards) > 0)
    print("goes on from", step, "whole" if all(states) else f"HALF {states}", flush=True)
while True:
    step += 1
    print(f"step {step} loss {1 / step:.4f}", flush=True)
    time.sleep(0.1)
    if step % 30 == 0:
        folder = out / f"checkpoint-{step}"
        folder.mkdir()
        for name in PARTS:
            write(folder / name, step)
        for name in SHARDS:
            write(out / name, step)
"""


@dataclass
class Trained:
    """A live run on a box, and what its user has of it at home."""

    rented: Rented
    name: str
    """The box's."""
    tree: str
    log_there: str
    pull: Running

    @property
    def there(self) -> Path:
        """Its results on the box."""
        return self.rented.box.root / self.tree[1:] / "out"

    @property
    def home(self) -> Path:
        """The folder of its results here."""
        return self.rented.user.place / "boxstrap-results" / self.name / "train-1"


def files_in_newest(out: Path) -> int:
    """How many files the newest checkpoint has."""
    folders = sorted(out.glob("checkpoint-*"), key=lambda one: int(one.name[11:]))
    return len(list(folders[-1].iterdir())) if folders else 0


def being_written(run: Trained) -> bool:
    return (
        files_in_newest(run.there) in (1, 2, 3)
        and time.time() - max((one.stat().st_mtime for one in run.there.rglob("*.pt")), default=0.0)
        < 0.1
    )


def between_files(run: Trained) -> bool:
    return files_in_newest(run.there) in (1, 2)


def in_transfer(run: Trained) -> bool:
    return any(one.stat().st_size for one in run.home.glob(".boxstrap-parts/*"))


def while_it_lands(run: Trained) -> bool:
    return files_in_newest(run.home / "out") in (1, 2)


def whenever(_run: Trained) -> bool:
    return True


MOMENTS: dict[str, Callable[[Trained], bool]] = {
    "while a checkpoint is written": being_written,
    "between its files": between_files,
    "in the pull's transfer": in_transfer,
    "while it lands, with this machine": while_it_lands,
    "at some moment": whenever,
}
EMPTIED = """
cd "$(readlink -f ~/.boxstrap)" && cd .. && rm -rf homework homework@* && cd .boxstrap &&
rm -rf lock setup.sh runs setups store steps/*/ /tmp/tmux-*
"""


def test_a_run_of_a_destroyed_box_resumes_on_another_from_its_last_whole_checkpoint(
    rent: Rent, seeded: random.Random, faults: Faults, request: pytest.FixtureRequest
) -> None:
    boxes = [rent("vast", used=True), rent("vast", used=True)]
    user = boxes[0].user
    user.repository("homework", boxstrap__yaml=PROFILE, train__py=TRAIN)
    boxes[0].run("setup", "--name", "box-0").must(0)
    run = watched(boxes[0], "box-0")
    tries = request.config.getoption("tries")
    kinds = seeded.sample([*MOMENTS], len(MOMENTS))
    for number in range(1, tries + 1):
        kind = kinds[number % len(kinds)]
        with faults.attempt(f"box destroyed {kind}", at="run --resume") as attempt:
            limit = 2.0 if MOMENTS[kind] in (in_transfer, while_it_lands) else 0
            run.rented.box.limit(limit)
            strike(run, MOMENTS[kind], seeded)
            user.run("boxes", "--forget", run.name).must(0)
            # What is at home can be read without the box, and its curve drawn.
            kept = user.run("logs", "--host", run.name, "--run", "train-1").must(0).out
            assert "step " in kept
            other = boxes[number % 2]
            name = f"box-{number}"
            attempt.begin()
            done = other.run("run", "--resume", f"{run.name}/train-1", "--name", name).must(0)
            attempt.noticed()
            log = other.box.read(log_of(other))
            said = re.match(r"goes on from (\d+) (.*)\n", log)
            assert said, log
            assert said[2] == "whole", (log, done.text)
            run.rented.box.power_on()
            steps = re.findall(r"^step (\d+) ", run.rented.box.read(run.log_there), re.M)
            assert 0 < int(said[1]) <= int(steps[-1])
            is_half = files_in_newest(run.home / "out") in (1, 2)
            attempt.outcome("from a whole one" + (", a half one was at home" if is_half else ""))
            assert user.run("report", "--host", run.name, "--run", "train-1").must(0)
            run.rented.as_user(EMPTIED)
            run = watched(other, name)
            again = other.run("logs", "--run", "train-1", host=name).must(0).out
            assert f"step {int(said[1]) + 1} loss" in again
    run.pull.kill()
    run.pull.end()


def log_of(rented: Rented) -> str:
    """Where the log of its only run is on the box."""
    (key,) = rented.box.folders(f"{rented.folder}/runs")
    return f"{rented.folder}/runs/{key}/train-1/log"


def watched(rented: Rented, name: str) -> Trained:
    """Watch its run, until the first checkpoint that it made is at home."""
    pull = rented.begin("pull", "--watch", host=name)
    run = Trained(rented, name, rented.tree, log_of(rented), pull)
    wait_until(lambda: list(run.home.glob("out/checkpoint-*/c.pt")), pull.said)
    return run


def strike(run: Trained, moment: Callable[[Trained], bool], chance: random.Random) -> None:
    """Destroy the box at such a moment, and end its user's pull, which would wait for it."""
    time.sleep(chance.uniform(0, 3))
    # A landing takes milliseconds, and may be over between two looks: then at some moment.
    until = time.monotonic() + 12
    wait_until(lambda: is_so(run, moment) or time.monotonic() > until, run.pull.said, pause=0.0005)
    if moment is while_it_lands:
        run.pull.kill()
    time.sleep(chance.uniform(0, 0.1))
    run.rented.box.power_off()
    run.pull.kill()
    run.pull.end()


def is_so(run: Trained, moment: Callable[[Trained], bool]) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return moment(run)
    return False
