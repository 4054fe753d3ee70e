"""The monitor, as placed on a box: what it records of live runs, and when it ends."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from bootstrap.onbox.runs import monitor
from tests.box_programs import lay_programs
from tests.nvml import stub
from tests.nvml.scenarios import A100
from tests.programs import captured
from tests.run_states import CASES, Processes, lay, some_processes
from tests.waiting import PATIENCE_S, wait_until

LIVE, DIED = "at work", "both were killed"


@pytest.fixture
def processes() -> Iterator[Processes]:
    found = some_processes()
    yield found
    found.close()


@pytest.fixture
def begin(rig: stub.NvmlRig, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts monitors of a box whose folder is `tmp_path`."""
    lay_programs(tmp_path / "box/current")
    (tmp_path / "runs").mkdir()
    begun: list[subprocess.Popen[bytes]] = []

    def start(scenario: str = A100, stays: float = 0.6) -> subprocess.Popen[bytes]:
        (tmp_path / "scenario").write_text(scenario)
        environment = {
            "PATH": os.environ["PATH"],
            "NVML_SCENARIO": str(tmp_path / "scenario"),
            "LD_LIBRARY_PATH": str(rig.library.parent),
        }
        words = [
            "box/current/onbox",
            "runs.monitor",
            str(tmp_path),
            "--every",
            "0.2",
            "--stays",
            str(stays),
        ]
        begun.append(subprocess.Popen([str(rig.python), *words], cwd=tmp_path, env=environment))
        return begun[-1]

    yield start
    for process in begun:
        process.kill()
        process.wait()


def samples(run: Path) -> list[Any]:
    """Return the samples of a run, one for each line."""
    file = run / "samples"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def await_samples(run: Path, count: int) -> list[Any]:
    return wait_until(lambda: found if len(found := samples(run)) >= count else [])


Begin = Callable[..., subprocess.Popen[bytes]]


def test_the_monitor_samples_live_runs_and_ends_after_the_last(
    begin: Begin, processes: Processes, tmp_path: Path
) -> None:
    run, other = tmp_path / "runs/homework-1/train-1", tmp_path / "runs/other-2/train-1"
    lay(CASES[LIVE], processes, run)
    lay(CASES[DIED], processes, other)
    began = time.time()
    first = begin()
    head, *rows = await_samples(run, 4)
    assert head["v"] == 1
    assert head["memory_total"] == psutil.virtual_memory().total
    (gpu,) = head["gpus"]
    assert gpu["name"] == "NVIDIA A100-SXM4-80GB"
    assert (gpu["memory_total"], gpu["power_limit"]) == (80 * 2**30, 400.0)
    for when, cpu, memory, gpus in rows:
        assert began - 1 <= when <= time.time() + 1
        assert 0 <= cpu <= 100
        assert 0 < memory < head["memory_total"]
        assert gpus == [[0, 4 * 2**20, None, 31]]
    assert not samples(other)
    # Only one for each box.
    assert begin().wait(PATIENCE_S) == 0
    assert first.poll() is None
    # A run that ended is no longer sampled; the next one uses the same monitor.
    (run / "exit").write_text("0\n")
    lay(CASES[LIVE], processes, tmp_path / "runs/homework-1/train-2")
    await_samples(tmp_path / "runs/homework-1/train-2", 3)
    count = len(samples(run))
    processes.living.kill()
    assert first.wait(PATIENCE_S) == 0
    assert len(samples(run)) == count


def test_the_monitor_also_samples_a_run_that_began_as_the_monitor_was_ending(
    begin: Begin, processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = 0

    def watch(box_home: Path, *_: float) -> None:
        nonlocal times
        times += 1
        if times == 1:
            lay(CASES[LIVE], processes, tmp_path / "runs/homework-1/train-1")
            # The monitor that this run started.
            assert begin().wait(PATIENCE_S) == 0
        else:
            processes.living.kill()
            processes.living.wait()

    monkeypatch.setattr(monitor, "watch", watch)
    monitor.serve(tmp_path, 0.1, 0.1)
    assert times == 2


def test_the_monitor_samples_cpu_and_memory_while_the_gpu_driver_hangs(
    begin: Begin, processes: Processes, tmp_path: Path
) -> None:
    run = tmp_path / "runs/homework-1/train-1"
    lay(CASES[LIVE], processes, run)
    going = begin(f"{A100}\ngpu.0.memory_v2 = hang")
    head, *rows = await_samples(run, 3)
    assert head["gpus"] == []
    assert [row[3] for row in rows] == [[]] * len(rows)
    assert rows[0][2] > 0
    processes.living.kill()
    assert going.wait(PATIENCE_S) == 0


def test_the_monitor_continues_after_a_damaged_sample_and_ends_once_its_folder_is_gone(
    begin: Begin, processes: Processes, tmp_path: Path
) -> None:
    run = tmp_path / "runs/homework-1/train-1"
    lay(CASES[LIVE], processes, run)
    # As a full disk may leave it: the rest of the line is missing.
    (run / "samples").write_text('{"v": 1, "gpus": []}\n[17000')
    going = begin()
    wait_until(lambda: (run / "samples").read_text().count("\n") >= 3)
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    assert going.wait(PATIENCE_S) == 0


def test_thinning_out_a_long_file_of_monitor_samples_deletes_every_second_row(
    tmp_path: Path,
) -> None:
    file = tmp_path / "samples"
    file.write_text("head\n" + "".join(f"{number}\n" for number in range(101)))
    assert monitor.thin_out(file) == 50
    assert file.read_text().split() == ["head", *map(str, range(1, 101, 2))]


def test_the_monitor_takes_little_processor_time_and_memory_for_eight_live_runs(
    begin: Begin, processes: Processes, tmp_path: Path
) -> None:
    """A sample of eight live runs every 10 s may take 0.5 % of a core: 50 ms, and no process."""
    run = tmp_path / "runs/homework-1/train-1"
    for number in range(1, 9):
        lay(CASES[LIVE], processes, run.with_name(f"train-{number}"))
    going = psutil.Process(begin(stays=60).pid)
    await_samples(run, 3)
    before, count = going.cpu_times(), len(samples(run))
    await_samples(run, count + 10)
    spent = sum(going.cpu_times()[:4]) - sum(before[:4])
    stat = Path(f"/proc/{going.pid}/stat").read_text().rpartition(")")[2].split()
    assert (int(stat[8]), going.children()) == (0, []), "page faults of children it waited for"
    print(f"{spent / (len(samples(run)) - count):.4f} s")
    assert spent / (len(samples(run)) - count) < 0.05
    assert going.memory_info().rss < 40 * 2**20


@pytest.mark.parametrize("unread", ["memory", "load", "temperature"])
def test_the_load_of_a_gpu_is_still_shown_by_top_and_monitor_if_its_memory_can_not_be_read(
    rig: stub.NvmlRig, tmp_path: Path, unread: str
) -> None:
    """A card that doesn't report its memory works all the same, as `top` and the lease see it."""
    lay_programs(tmp_path / "box/current")
    scenario = f"{A100}\ngpu.load = 96 10\ngpu.{unread} = !3\n"
    scenario += "gpu.memory_v2 = !3\n" if unread == "memory" else ""
    (tmp_path / "scenario").write_text(scenario)
    environment = {
        "PATH": os.environ["PATH"],
        "NVML_SCENARIO": str(tmp_path / "scenario"),
        "LD_LIBRARY_PATH": str(rig.library.parent),
    }
    sample = "import json; from box.current.onbox.runs import top_stream, monitor;"
    sample += "g = monitor.GpuWatch(9); g.start();"
    sample += (
        "g.is_ready.wait(9); print(json.dumps([top_stream.BoxSampler(None).sample(), g.rows()]))"
    )
    done = captured([str(rig.python), "-c", sample], cwd=tmp_path, env=environment)
    shown, rows = json.loads(done.stdout)
    (gpu,) = shown["gpus"]
    assert "error" not in gpu
    assert gpu["load"] == (None if unread == "load" else 96)
    assert (gpu["memory_total"] is None) == (unread == "memory")
    assert rows[0][0] == gpu["load"]
    assert rows[0][3] == gpu["temperature"]
