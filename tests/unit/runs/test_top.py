"""`top`: boxes watched live, one of which sends samples without end."""

import json
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from bootstrap.boxes import Sample
from bootstrap.link import BoxOptions
from bootstrap.onbox import MAIN
from bootstrap.onbox.runs import top_stream
from bootstrap.runs import top
from bootstrap.runs.top import BoxView, Feed, TopOptions, watch_boxes

MANY = 100_000


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def test_top_draws_only_the_newest_sample_of_a_box_that_sends_too_fast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If a box sends faster than a screen draws, only the newest sample is kept and shown."""
    queues: list[queue.Queue[BoxView]] = []
    longest = 0

    def run(feed: Feed) -> None:
        nonlocal longest
        queues.append(feed._changes)
        for number in range(MANY):
            feed._take(Sample(t=float(number)))
            longest = max(longest, feed._changes.qsize())

    class RecordingScreen:
        shown: float = -1.0

        def show(self, views: Sequence[BoxView], changed: BoxView | None) -> None:
            if changed is not None and changed.sample is not None:
                self.shown = changed.sample.t

        def is_left(self) -> bool:
            return False

        def close(self) -> None:
            assert queues[0].qsize() <= 1

    monkeypatch.setattr(top.Feed, "run", run)
    screen = RecordingScreen()
    watch_boxes(BoxOptions(), ["local"], TopOptions(samples=MANY), screen)
    assert longest == 1
    assert screen.shown >= 0


@pytest.mark.slow
def test_top_gives_up_on_a_hanging_gpu_driver_of_a_box(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_stream, "BoxSampler", lambda _runs: time.sleep(600))
    child, fork = list[int](), os.fork
    monkeypatch.setattr(os, "fork", lambda: child.append(fork()) or child[0])
    top_stream.sample_within(0.2)
    os.kill(child[0], signal.SIGKILL)  # it left the driver's process alone
    os.wait()


@pytest.mark.slow
def test_top_finds_the_run_of_a_process_by_the_variable_boxstrap_run() -> None:
    mark = "/workspace/.boxstrap/runs/homework-01234567/train-2"
    run = subprocess.Popen(["sleep", "60"], env={"A": "b", "BOXSTRAP_RUN": mark})
    try:
        while not Path(f"/proc/{run.pid}/environ").read_bytes():
            time.sleep(0.01)  # the kernel has started the program, but not yet set up its memory
        assert top_stream.run_of(run.pid) == "homework-01234567/train-2"
    finally:
        run.kill()
        run.wait()
    assert top_stream.run_of(run.pid) == ""


@pytest.mark.slow
def test_the_first_sample_of_top_shows_a_cpu_load_above_0_on_a_busy_box(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-B", MAIN, "runs.top_stream", str(tmp_path), '{"every": 2}']
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    top_there = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert top_there.stdout
    try:
        assert json.loads(top_there.stdout.readline())["host"]["cpu"] > 0
    finally:
        busy.kill()
        busy.wait()
        top_there.communicate()


@pytest.mark.slow
def test_top_redacts_on_the_box_what_another_machine_gave_it(tmp_path: Path) -> None:
    run = tmp_path / "runs/homework/train-1"
    run.mkdir(parents=True)
    for name, text in {"started": "9\n", "exit": "0\n", "log": "loss 0.5 its-value now\n"}.items():
        (run / name).write_text(text)
    (tmp_path / "secrets").write_bytes(b"TOKEN=its-value\0")
    command = [sys.executable, "-I", "-B", MAIN, "runs.top_stream", str(tmp_path), '{"every": 2}']
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    shown = json.loads(done.stdout)["run"]
    assert (shown["last"], shown["metric"]) == ("loss 0.5 [TOKEN hidden] now",) * 2
