"""Which line of a log is a training's first: a box waits for it, and for what dies before it."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import cast

import pytest

from bootstrap.link.local import LocalWire
from bootstrap.protocol.follow import FirstOutput, is_first, watch_beginning
from bootstrap.protocol.query import AskedBox
from bootstrap.protocol.run import Run
from tests.unit.protocol.conftest import BoxHome

pytestmark = pytest.mark.slow

OTHERS = {
    "warning": "/venv/lib/x.py:12: UserWarning: step 3 is slow\n  warnings.warn('step 3')\n",
    "traceback": 'Traceback (most recent call last):\n  File "train.py", line 1, step 2\n',
    "log of a library": "[W1128 10:00:00.1 socket.cpp:1] step 2 failed\n2026 [WARNING] loss=1\n",
    "tensorflow": "2026-01-01 10:00:00.1: I tensorflow/core step 2\n",
    "torchrun": "*****\nSetting OMP_NUM_THREADS environment variable to be 1, step 1\n*****\n",
    "wandb": "wandb: Run data is saved in step 1\n",
    "configuration": "Overriding: learning_rate = 0.001\nlr_decay_iters: 5000\n",
}
OWN = {
    "step": "step 1 of 10\n",
    "epoch": "Epoch [1/20]\n",
    "metric": "{'loss': 0.42}\n",
    "bar": " 0%|          | 0/10 [00:00<?, ?it/s]\r 1%|#         | 1/10 [00:00<?, 1it/s]",
    "after a warning": "x.py:1: FutureWarning: old\n  old()\niter 0: loss 10.9\n",
    "after another line": "number of parameters: 10.65M\nstep 0: train loss 4.2\n",
}
PLAIN = "Loading the data set\n"


def watch(box_home: BoxHome, log: str, seconds: int = 5) -> tuple[FirstOutput, float]:
    """Watch the live run whose log this is; return what it began with, after how many seconds."""
    box_home.write({"runs/homework-1/train-3/log": log})
    box = SimpleNamespace(wire=LocalWire(), workdir=str(box_home.workdir), redacted_there=())
    run = SimpleNamespace(repo_key="homework-1", name="train-3")
    began = time.monotonic()
    found = watch_beginning(cast(AskedBox, box), cast(Run, run), seconds)
    return found, time.monotonic() - began


@pytest.mark.parametrize("log", OWN.values(), ids=OWN)
def test_a_line_of_a_training_is_enough(box_home: BoxHome, log: str) -> None:
    found, took = watch(box_home, log, 60)
    assert found.state == "running"
    assert took < 30
    assert sum(map(is_first, log.replace("\r", "\n").splitlines())) >= 1


@pytest.mark.parametrize("log", OTHERS.values(), ids=OTHERS)
def test_what_dies_after_a_warning_is_told_as_over(box_home: BoxHome, log: str) -> None:
    assert not any(map(is_first, log.splitlines()))
    end = box_home.path / "runs/homework-1/train-3/exit"
    threading.Timer(2.5, end.write_text, ("1\n",)).start()
    found, _ = watch(box_home, log, 60)
    assert (found.state, found.rc) == ("finished", 1)


def test_after_another_line_its_death_is_waited_for_a_moment(box_home: BoxHome) -> None:
    end = box_home.path / "runs/homework-1/train-3/exit"
    threading.Timer(1, end.write_text, ("1\n",)).start()
    assert watch(box_home, PLAIN, 60)[0].rc == 1
    end.unlink()
    found, took = watch(box_home, PLAIN, 60)
    assert (found.state, found.lines) == ("running", (PLAIN.strip(),))
    assert took < 30


def test_what_died_without_an_exit_code_is_not_waited_for(box_home: BoxHome) -> None:
    box_home.write({"runs/homework-1/train-3/pid": "999999999 1 none\n"})
    found, took = watch(box_home, "", 60)
    assert found.state == "died"
    assert took < 30


def test_the_first_line_is_shown_after_many_others(box_home: BoxHome) -> None:
    found, _ = watch(box_home, "x.py:1: UserWarning: old\n" * 30 + "step 1\nstep 2\n")
    assert found.lines[-1] == "step 1"


@pytest.mark.parametrize(
    ("log", "made", "nothing"),
    [("", "{}", True), ("step 1\n", "{}", False), ("", '{"x":[1,2,3]}', False)],
    ids=["nothing", "a word", "a result"],
)
def test_a_run_that_made_nothing_is_no_training(
    box_home: BoxHome, log: str, made: str, nothing: bool
) -> None:
    place = "runs/homework-1/train-3"
    noted = f'{{"v":1,"files":{made}}}'
    box_home.write(
        {
            f"{place}/{name}": text
            for name, text in {"exit": "0\n", "results": "out/\n", "results.made": noted}.items()
        }
    )
    found, _ = watch(box_home, log)
    assert (found.state, found.rc, found.made_nothing) == ("finished", 0, nothing)
