"""Out-of-memory kills during a run: which file counts them, what is noted, and a real one."""

import os
import shlex
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.boxes import Run, find_failure
from bootstrap.onbox.run_folder import RunFolder
from bootstrap.onbox.runs.memory_kills import find_counter, keep_kills
from tests.box_programs import lay_programs, runner_of
from tests.unit.onbox.test_runner import make_run

V1, V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
# The process's cgroup line, and the folder and file that count its kills.
PLACES = {
    "v2, its own": ("0::/user/session-1", {"v2/user/session-1": "memory.events"}),
    "v2, above it": ("0::/user/session-1/boxstrap-x", {"v2/user": "memory.events"}),
    "v2, a container's root": ("0::/", {"v2": "memory.events"}),
    "v2, a path that it can't see": ("0::/docker/abc", {"v2": "memory.events"}),
    "v1": ("4:memory:/docker/abc", {"v1/docker/abc": "memory.oom_control"}),
    "v1 beside v2": ("4:cpu,memory:/abc\n0::/", {"v1/abc": "memory.oom_control"}),
    "nobody": ("0::/", {}),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_file_that_counts_memory_kills_is_that_of_the_nearest_cgroup_with_one(
    place: str, tmp_path: Path
) -> None:
    inside, files = PLACES[place]
    for folder, name in files.items():
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / name).write_text("")
    v1 = f"cgroup {tmp_path}/v1 cgroup rw,relatime,cpu,memory 0 0"
    v2 = f"cgroup2 {tmp_path}/v2 cgroup2 rw,nsdelegate 0 0"
    cgroups = ["9:name=systemd:/", *inside.split("\n")]
    found = find_counter(["proc /proc proc rw 0 0", v1, v2], cgroups)
    assert found == "".join(f"{tmp_path}/{folder}/{name}" for folder, name in files.items())


KERNEL = (
    "[ 1000.123456] Out of memory: Killed process 41 (old) total-vm:1kB, anon-rss:9kB\n"
    "[ {at}.500000] Memory cgroup out of memory: Killed process {pid} (python3 main) "
    "total-vm:300kB, anon-rss:2000kB, file-rss:1kB\n[ 9999.000000] later: words\n"
)


@pytest.mark.parametrize(
    ("before", "after", "code", "kernel", "noted"),
    [
        (1, 3, 1, KERNEL.format(at=5000, pid=77), "2 8000 2048000 python3 main\n"),
        (1, 2, 137, KERNEL.format(at=2000, pid=77), "1 8000 - -\n"),
        (1, 2, 137, "", "1 8000 - -\n"),
        (1, 1, 137, KERNEL.format(at=5000, pid=77), "0 8000 - -\n"),
        (1, 1, 1, "", None),
        (1, 1, 137, KERNEL.format(at=5000, pid=42), "1 8000 2048000 python3 main\n"),
        (None, None, 137, KERNEL.format(at=5000, pid=42), "1 - 2048000 python3 main\n"),
        (None, None, 137, KERNEL.format(at=5000, pid=77), None),
        (None, None, 137, "[x] Killed process\n", None),
    ],
    ids=[
        *("named", "earlier in the log", "no log", "none", "none, failed"),
        *("before it was noted", "child", "other's", "odd"),
    ],
)
def test_out_of_memory_kills_during_a_run_are_noted_with_limit_and_killed_program(
    before: int | None, after: int, code: int, kernel: str, noted: str | None, tmp_path: Path
) -> None:
    counter, killed = tmp_path / "memory.events", tmp_path / "killed"
    # The command started 4,000 seconds after boot.
    (tmp_path / "pid").write_text("40 399900 boot\n42 400000 boot\n")
    if before is not None:
        (tmp_path / "kills").write_text(f"{before} 8000 {counter}\n")
        counter.write_text(f"oom 9\noom_kill {after}\noom_group_kill 0\n")
    keep_kills(RunFolder(tmp_path), str(code), kernel)
    assert (killed.read_text() if killed.exists() else None) == noted


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A cgroup limited to 80 MB, for the processes that a test puts into it."""
    v1 = (V1 / "memory.limit_in_bytes").exists()
    group = (V1 if v1 else V2) / f"boxstrap-test-{uuid.uuid4()}"
    limit = group / ("memory.limit_in_bytes" if v1 else "memory.max")
    try:
        group.mkdir()
        limit.write_text("80000000")
    except OSError as error:
        if group.exists():
            group.rmdir()
        pytest.skip(f"no cgroup with a limit can be made here: {error}")
    yield group
    until = time.monotonic() + 60
    while group.exists():  # killed processes may still be exiting
        try:
            group.rmdir()
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.05)


@pytest.mark.slow
def test_a_real_out_of_memory_kill_of_a_run_is_named_with_its_limit(
    small_cgroup: Path, tmp_path: Path
) -> None:
    eater = "python3 -c 'x = bytearray(300 * 1000 * 1000)'; exit 3"
    run = make_run(tmp_path, eater)
    words = shlex.join(runner_of(lay_programs(tmp_path), run))
    inside = ["bash", "-c", f"echo $$ >{small_cgroup}/cgroup.procs; exec {words}"]
    plain = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    subprocess.run(inside, env=plain, stdin=subprocess.DEVNULL, check=True, timeout=120)
    assert (run / "exit").read_text() == "3\n"
    killed = (run / "killed").read_text().strip()
    count, limit, *_ = killed.split()
    assert (count, int(limit) <= 80_000_000) == ("1", True)
    failed = Run("k", "n", "finished", 3, 1, "", "", "", 1, 1, "x", killed_for_memory=killed)
    failure = find_failure(failed, (run / "log").read_bytes())
    assert failure
    assert failure.what.startswith("the kernel killed a process for memory while it ran")
    assert failure.what.endswith("the limit for all processes is 80 MB")
