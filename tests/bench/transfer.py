"""10,000 small files and one of 4 GB over a link of 100 MB/s: `push`, beside rsync over ssh."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import time
from pathlib import Path
from statistics import median

import psutil

from tests.bench import clock
from tests.bench.clock import BenchError, TimedCall
from tests.bench.stage import Stage, StagePlace
from tests.bench.table import Bar, BenchRow
from tests.bench.tell import tell

_MB_S = 100.0
_FILES, _SMALL = 10_000, 10_000
_OF_RSYNC = {False: 1.15, True: 1.1}
_MOST_MEMORY_MB, _MOST_AGAIN_MB = 150, 5 * 16 * 1.048576
_CUTS = 5
_LOOK_S = 0.5
"""Between two looks at a push: they take a core from it."""
_PROFILE = "version: 1\nextends: vast\ngpu: {require: false}\n"
_RSYNC = "/workspace/rsync"
_PROGRAM = "import zlib,base64;exec"
"""How the program of the box's side begins."""


def measure(stage: Stage, runs: int, large_mb: int) -> list[BenchRow]:
    """On one box, near and 100 ms away; then near with five cuts."""
    near = stage.box("vast")
    repository = stage.repository("moved", {"boxstrap.yaml": _PROFILE, ".gitignore": "data/\n"})
    clock.run(_call(stage, near, repository, "setup"), stage.file("transfer.out"))
    source = repository / "data"
    _write(source, large_mb)
    near.box.limit(_MB_S)
    group = f"{_FILES:,} files of 10 kB and one of {large_mb / 1000:g} GB, link of 100 MB/s"
    rows = []
    for is_far, place in {False: near, True: stage.far(near)}.items():
        # What is met first at this address is not counted.
        clock.run(_call(stage, place, repository, "status"), stage.file("transfer.out"))
        found: dict[str, list[float]] = {"rsync": [], "push": [], "again": []}
        memory = 0.0
        for _ in range(runs):
            near.box.run(f"rm -rf {_RSYNC} {_target(repository)} /workspace/.boxstrap/data")
            found["rsync"].append(_rsync(stage, place, source))
            near.box.run(f"rm -rf {_RSYNC}")
            seconds, held = _push(stage, place, repository)
            found["push"].append(seconds)
            memory = max(memory, *held)
            found["again"].append(_push(stage, place, repository)[0])
            tell(f"{'far' if is_far else 'near'}: {found}")
            _compare(stage, near, source, repository)
        where = ", 100 ms away" if is_far else ""
        bar = Bar(_OF_RSYNC[is_far] * median(found["rsync"]), f"{_OF_RSYNC[is_far]} of rsync")
        rows += [
            BenchRow(group, f"rsync -a{where}", found["rsync"]),
            BenchRow(group, f"boxstrap push{where}", found["push"], bar=bar),
            BenchRow(group, "  again, nothing to do", found["again"]),
            BenchRow(
                group, "  its memory, either side", [memory], "MB", Bar(_MOST_MEMORY_MB), digits=0
            ),
        ]
    return [*rows, *_cut(stage, near, repository, group)]


def _write(source: Path, large_mb: int) -> None:
    chance = random.Random(15)
    for number in range(_FILES):
        path = source / "small" / str(number % 100) / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(_SMALL))
    with (source / "large.bin").open("wb") as file:
        for _ in range(large_mb // 10):
            file.write(chance.randbytes(10_000_000))


def _target(repository: Path) -> str:
    return f"/workspace/{repository.name}/data"


def _call(stage: Stage, place: StagePlace, repository: Path, *words: str) -> TimedCall:
    there = ("--host", place.host, "--identity", str(place.box.identity))
    state = f"transfer-{place.ssh_config.stem}"
    return stage.boxstrap(*words, *there, state=state, repository=repository)


def _rsync(stage: Stage, place: StagePlace, source: Path) -> float:
    words = ["rsync", "-a", "-e", f"ssh -F {place.ssh_config}", f"{source}/", f"box:{_RSYNC}/"]
    return clock.run(TimedCall(words, stage.environment(), source), stage.file("rsync.out"), 1200)


def _push(
    stage: Stage, place: StagePlace, repository: Path, cuts: int = 0
) -> tuple[float, tuple[float, float]]:
    """Seconds, and the most memory of either side in MB; cut so often, at even shares of it."""
    call = _call(stage, place, repository, "push", "data")
    log, part = stage.file("push.out"), place.box.root / _target(repository)[1:]
    here = there = 0.0
    all_bytes = sum(path.stat().st_size for path in (repository / "data").rglob("*.bin"))
    marks = [all_bytes * (cut + 1) / (cuts + 1) for cut in range(cuts)]
    began = time.perf_counter()
    with log.open("wb") as said:
        process = psutil.Popen(
            call.argv, env=call.env, cwd=call.cwd, stdout=said, stderr=subprocess.STDOUT
        )
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                here = max(here, process.memory_info().rss / 1e6)
            there = max(there, _held_there())
            if marks and _on_disk(part) > marks[0]:
                del marks[0]
                place.box.run("pkill -9 -f '^sshd: [^/]' || true")
            time.sleep(_LOOK_S)
    seconds = time.perf_counter() - began
    if process.returncode or marks:
        raise BenchError(f"push: exit {process.returncode}\n{log.read_text()[-2000:]}")
    return seconds, (here, there)


def _held_there() -> float:
    """What the programs on boxes hold, in MB: their processes are seen from this machine."""
    held = 0.0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(word.startswith(_PROGRAM) for word in process.cmdline()):
                held = max(held, process.memory_info().rss / 1e6)
    return held


def _on_disk(folder: Path) -> int:
    """Bytes of files that are there; one that comes or goes meanwhile doesn't matter."""
    total = 0
    for top, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(top) / name).stat().st_size
    return total


def _compare(stage: Stage, near: StagePlace, source: Path, repository: Path) -> None:
    """Byte for byte, by a tool that is not ours."""
    there = near.box.root / _target(repository)[1:]
    done = subprocess.run(
        ["diff", "-rq", str(source), str(there)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchError(f"not the same:\n{done.stdout[:2000]}")


def _cut(stage: Stage, near: StagePlace, repository: Path, group: str) -> list[BenchRow]:
    near.box.run(f"rm -rf {_target(repository)} /workspace/.boxstrap/data")
    counts = []
    for cuts in (0, _CUTS):
        near.box.run(f"rm -rf {_target(repository)} /workspace/.boxstrap/data")
        before = int(near.box.read("/sys/class/net/eth0/statistics/rx_bytes"))
        seconds, held = _push(stage, near, repository, cuts)
        counts.append(int(near.box.read("/sys/class/net/eth0/statistics/rx_bytes")) - before)
        _compare(stage, near, repository / "data", repository)
    again = max(0, counts[1] - counts[0]) / 1e6
    return [
        BenchRow(group, f"push with {_CUTS} cuts", [seconds]),
        BenchRow(group, "  bytes sent twice", [again], "MB", Bar(_MOST_AGAIN_MB), digits=1),
        BenchRow(
            group, "  its memory, either side", [max(held)], "MB", Bar(_MOST_MEMORY_MB), digits=0
        ),
    ]
