"""10,000 small files and one of 4 GB over a link of 100 MB/s: `push`, `pull` and rsync."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import time
from pathlib import Path
from statistics import median

import psutil

from tools.bench import clock
from tools.bench.clock import BenchError, TimedCall
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

_MB_S = 100.0
_FILES, _SMALL = 10_000, 10_000
_OF_RSYNC = {False: 1.15, True: 1.1}
_MOST_MEMORY_MB, _MOST_AGAIN_MB = 150, 5 * 16 * 1.048576
_CUTS = 5
_IN, _OUT = ("rsync in", "push", "push again"), ("rsync out", "pull", "pull again")
"""The reference, boxstrap, and boxstrap again with nothing to do."""
_LOOK_S = 0.5
"""Seconds between two polls of a transfer: they take a core from it."""
_PROFILE = """\
version: 1
extends: vast
gpu: {require: false}
train: {command: "true", results: [data/]}
"""
_RSYNC = "/workspace/rsync"
_CARD = "/sys/class/net/eth0/statistics/{}_bytes"
_PROGRAM = "import zlib,base64;exec"
"""How the command line of the program on the box starts."""


def measure(stage: Stage, runs: int, large_mb: int) -> list[BenchRow]:
    """Measure on one box, near and 100 ms away; then near with five cuts."""
    near = stage.box("vast")
    repository = stage.repository("moved", {"boxstrap.yaml": _PROFILE, ".gitignore": "data/\n"})
    clock.run(_call(stage, near, repository, "setup"), stage.file("transfer.out"))
    source = repository / "data"
    _write(source, large_mb)
    near.box.limit(_MB_S)
    group = f"{_FILES:,} files of 10 kB and one of {large_mb / 1000:g} GB, link of 100 MB/s"
    rows = []
    for is_far, place in {False: near, True: stage.far(near)}.items():
        # The first contact at this address is not counted.
        clock.run(_call(stage, place, repository, "status"), stage.file("transfer.out"))
        found: dict[str, list[float]] = {name: [] for name in (*_IN, *_OUT)}
        memory = 0.0
        home = repository / "boxstrap-results"
        for _ in range(runs):
            _clear(near, repository)
            found["rsync in"].append(_rsync(stage, place, f"{source}/", f"box:{_RSYNC}/"))
            _clear(near, repository)
            for name in ("push", "push again"):
                seconds, *held = _timed(stage, place, repository, "push", "data")
                found[name].append(seconds)
                memory = max(memory, *held)
            _compare(source, near.box.root / _target(repository)[1:])
            out = stage.file("rsync-out")
            found["rsync out"].append(
                _rsync(stage, place, f"box:{_target(repository)}/", f"{out}/")
            )
            for name in ("pull", "pull again"):
                seconds, *held = _timed(stage, place, repository, "pull")
                found[name].append(seconds)
                memory = max(memory, *held)
            _compare(source, next(home.glob("*/*/data")))
            # Not earlier: ext4 creates files slowly for minutes after it, which would slow us down.
            shutil.rmtree(out)
            shutil.rmtree(home)
            tell(f"{'far' if is_far else 'near'}: {found}")
        where = ", 100 ms away" if is_far else ""
        for peer, ours, again in (_IN, _OUT):
            bar = Bar(_OF_RSYNC[is_far] * median(found[peer]), f"{_OF_RSYNC[is_far]} of rsync")
            rows += [
                BenchRow(group, f"{peer}{where}", found[peer]),
                BenchRow(group, f"boxstrap {ours}{where}", found[ours], bar=bar),
                BenchRow(group, f"  {again}, nothing to do", found[again]),
            ]
        bar = Bar(_MOST_MEMORY_MB)
        rows.append(BenchRow(group, "  memory, either side", [memory], "MB", bar, digits=0))
    for words in (("push", "data"), ("pull",)):
        rows += _cut(stage, near, repository, words, group)
    return rows


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


def _clear(near: StagePlace, repository: Path) -> None:
    near.box.run(f"rm -rf {_RSYNC} {_target(repository)} /workspace/.boxstrap/data")


def _rsync(stage: Stage, place: StagePlace, source: str, target: str) -> float:
    words = ["rsync", "-a", "-e", f"ssh -F {place.ssh_config}", source, target]
    call = TimedCall(words, stage.environment(), stage.folder)
    return clock.run(call, stage.file("rsync.out"), 1200)


def _timed(
    stage: Stage, place: StagePlace, repository: Path, *words: str, cuts: int = 0
) -> tuple[float, float, float]:
    """Return seconds and each side's peak memory in MB; the link is cut `cuts` times, evenly."""
    call = _call(stage, place, repository, *words)
    log, part = stage.file("transfer.out"), _copy(place, repository, words[0])
    here = there = 0.0
    programs: list[psutil.Process] = []
    all_bytes = sum(path.stat().st_size for path in (repository / "data").rglob("*.bin"))
    marks = [all_bytes * (cut + 1) / (cuts + 1) for cut in range(cuts)]
    began = time.perf_counter()
    with log.open("wb") as said:
        process = psutil.Popen(
            call.argv, env=call.env, cwd=call.cwd, stdout=said, stderr=subprocess.STDOUT
        )
        while process.poll() is None:
            here = max(here, _held(process))
            programs = [one for one in programs if one.is_running()] or _programs()
            there = max([there, *map(_held, programs)])
            if marks and _on_disk(part) > marks[0]:
                del marks[0]
                place.box.run("pkill -9 -f '^sshd: [^/]' || true")
            time.sleep(_LOOK_S)
    seconds = time.perf_counter() - began
    if process.returncode or marks:
        raise BenchError(f"{words}: exit {process.returncode}\n{log.read_text()[-2000:]}")
    return seconds, here, there


def _programs() -> list[psutil.Process]:
    """Find boxstrap's programs on boxes: this machine sees their processes. A full scan is slow."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(word.startswith(_PROGRAM) for word in process.cmdline()):
                found.append(process)
    return found


def _held(process: psutil.Process) -> float:
    """Return its memory in MB; 0 if it has ended."""
    with contextlib.suppress(psutil.Error):
        return float(process.memory_info().rss / 1e6)
    return 0.0


def _on_disk(folder: Path) -> int:
    """Return the bytes of its files; one that comes or goes during the walk doesn't matter."""
    total = 0
    for top, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += (Path(top) / name).stat().st_size
    return total


def _compare(source: Path, target: Path) -> None:
    """Compare byte for byte, with an independent tool. Raises BenchError."""
    done = subprocess.run(
        ["diff", "-rq", str(source), str(target)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchError(f"not the same:\n{done.stdout[:2000]}")


def _copy(place: StagePlace, repository: Path, name: str) -> Path:
    """Return where the files of a push or a pull arrive."""
    there = place.box.root / _target(repository)[1:]
    return there if name == "push" else repository / "boxstrap-results"


def _cut(
    stage: Stage, near: StagePlace, repository: Path, words: tuple[str, ...], group: str
) -> list[BenchRow]:
    """Run once without cuts, for the network card's count of bytes, and once with cuts."""
    name, counts = words[0], list[int]()
    card = _CARD.format("rx" if name == "push" else "tx")
    copy = _copy(near, repository, name)
    for cuts in (0, _CUTS):
        if name == "push":
            _clear(near, repository)
        else:
            shutil.rmtree(copy, ignore_errors=True)
        before = int(near.box.read(card))
        seconds, *held = _timed(stage, near, repository, *words, cuts=cuts)
        counts.append(int(near.box.read(card)) - before)
        _compare(repository / "data", next(copy.glob("*/*/data"), copy))
    again = max(0, counts[1] - counts[0]) / 1e6
    return [
        BenchRow(group, f"{name} with {_CUTS} cuts", [seconds]),
        BenchRow(group, "  bytes sent twice", [again], "MB", Bar(_MOST_AGAIN_MB), digits=1),
        BenchRow(
            group, "  its memory, either side", [max(held)], "MB", Bar(_MOST_MEMORY_MB), digits=0
        ),
    ]
