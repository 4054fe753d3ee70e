"""Which line of a log is a training's first: a box waits for it, and for what dies before it."""

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bootstrap.boxes import Run
from bootstrap.boxes.follow import FirstOutput, first_output, not_shown, watch_beginning
from bootstrap.link import LocalWire
from bootstrap.link.query import AskedBox
from bootstrap.onbox.processes import identity
from bootstrap.onbox.run_folder import RunFolder
from bootstrap.onbox.runs.first_output import await_output, became, is_first
from tests.unit.boxes.conftest import BoxHome

pytestmark = pytest.mark.slow

OTHERS = {
    "warning": "/venv/lib/x.py:12: UserWarning: step 3 is slow\n  warnings.warn('step 3')\n",
    "traceback": 'Traceback (most recent call last):\n  File "train.py", line 1, step 2\n',
    "log of a library": "[W1128 10:00:00.1 socket.cpp:1] step 2 failed\n2026 [WARNING] loss=1\n",
    "tensorflow": "2026-01-01 10:00:00.1: I tensorflow/core step 2\n",
    "torchrun": "*****\nSetting OMP_NUM_THREADS environment variable to be 1, step 1\n*****\n",
    "wandb": "wandb: Run data is saved in step 1\n",
    "configuration": "Overriding: learning_rate = 0.001\nlr_decay_iters: 5000\n"
    "learning_rate = 1e-3 # baby networks can go higher\nNamespace(batch_size=64, lr=1.0)\n"
    "{'num_workers': 4, 'learning_rate': 0.0005}\n",
    "an optimizer": "optimizer: SGD(lr=0.01) with groups\naccum_freq: 1\n",
    "bars of loading": "Loading weights:   0%|    | 0/27\nConverting dataset: 50%|#  | 25/50",
    "accelerate": "The following values were not passed to `accelerate launch`:\n\t`--x` was 0\n",
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
    run = RunFolder(box_home.path / "runs/homework-1/train-3")
    began = time.monotonic()
    await_output(run, seconds)
    return first_output("\n".join(became(run)).encode()), time.monotonic() - began


@pytest.mark.parametrize("log", OWN.values(), ids=OWN)
def test_run_stops_waiting_once_the_training_printed_a_line(box_home: BoxHome, log: str) -> None:
    found, took = watch(box_home, log, 60)
    assert found.state == "running"
    assert took < 30
    assert sum(map(is_first, log.replace("\r", "\n").splitlines())) >= 1


@pytest.mark.parametrize("log", OTHERS.values(), ids=OTHERS)
def test_run_does_not_stop_waiting_at_a_mere_warning_and_reports_the_exit_code_that_follows(
    box_home: BoxHome, log: str
) -> None:
    assert not any(map(is_first, log.splitlines()))
    end = box_home.path / "runs/homework-1/train-3/exit"
    end.with_name("code").write_text("1\n")
    threading.Timer(1.2, end.with_name("code").rename, (end,)).start()
    found, _ = watch(box_home, log, 60)
    assert (found.state, found.rc) == ("finished", 1)


def test_the_error_of_a_training_is_shown_before_its_launchers_traceback() -> None:
    one = 'Traceback (most recent call last):\n  File "{}", line 1\n{}\n'
    ended = one.format("train.py", "ValueError: no data") + one.format(
        "launch.py", "subprocess.CalledProcessError: Command '[python]' returned 1."
    )
    assert first_output(f"finished 1\n{ended}".encode()).lines[-1] == "ValueError: no data"


@pytest.mark.parametrize("before", [0, 2, 4])
def test_run_does_not_print_lines_of_a_traceback_twice(before: int) -> None:
    ended = "ValueError: no data\n  look there\n  and there\nwandb: bye"
    frame = '  File "train.py", line 1, in x\n    f(load(path))\n      ^^^^^^^^^^\n'
    log = f"warming up\nTraceback (most recent call last):\n{frame * 2}{ended}".splitlines()
    early = first_output("\n".join(["running", *["setting up"] * before, *log]).encode()).lines
    last = first_output("\n".join(["finished 1", *["setting up"] * before, *log]).encode()).lines
    told = [*early, *not_shown(last, early)]
    assert [told.count(line) for line in ended.splitlines()[:3]] == [1, 1, 1]
    assert sum("File" in line for line in told) == 2


def test_run_waits_a_moment_after_the_first_line_and_reports_a_failure_in_that_time(
    box_home: BoxHome,
) -> None:
    end = box_home.path / "runs/homework-1/train-3/exit"
    threading.Timer(1, end.write_text, ("1\n",)).start()
    assert watch(box_home, PLAIN, 60)[0].rc == 1
    end.unlink()
    found, took = watch(box_home, PLAIN, 60)
    assert (found.state, found.lines) == ("running", (PLAIN.strip(),))
    assert took < 30


def test_a_run_that_died_without_an_exit_code_ends_the_wait(box_home: BoxHome) -> None:
    box_home.write({"runs/homework-1/train-3/pid": "999999999 1 none\n"})
    box = SimpleNamespace(wire=LocalWire(), workdir=str(box_home.workdir), redacted_there=())
    run = SimpleNamespace(path="homework-1/train-3")
    began = time.monotonic()
    assert watch_beginning(cast(AskedBox, box), cast(Run, run), 60).state == "died"
    assert time.monotonic() - began < 30


def test_the_first_training_line_is_shown_even_after_thirty_warnings(box_home: BoxHome) -> None:
    found, _ = watch(box_home, "x.py:1: UserWarning: old\n" * 30 + "step 1\nstep 2\n")
    assert found.lines[-1] == "step 1"


@pytest.mark.parametrize(
    ("log", "made", "nothing"),
    [("", "{}", True), ("step 1\n", "{}", False), ("", '{"x":[1,2,3]}', False)],
    ids=["nothing", "a word", "a result"],
)
def test_run_says_that_a_run_made_nothing_if_it_left_neither_output_nor_new_results(
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


def test_a_run_that_prints_a_traceback_and_ends_a_second_later_is_told_as_failed(
    tmp_path: Path,
) -> None:
    (tmp_path / "pid").write_text(f"{identity(os.getpid())}\n")
    (tmp_path / "log").write_text("step 1 loss 2\nTraceback (most recent call last):\n")
    end = threading.Timer(1, lambda: (tmp_path / "exit").write_text("1\n"))
    end.start()
    state, _ = became(RunFolder(tmp_path))
    end.join()
    assert state == "finished 1"
