"""20,000 small results of one run, with `rsync -a` in turns; then 13 small runs of two boxes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tools.bench import clock
from tools.bench.clock import TimedCall
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

_FILES, _SIZE, _RUNS = 20_000, 1000, 13
_GROUP = f"{_FILES:,} results of {_SIZE:,} bytes"
_SMALL = f"{_RUNS} small runs of two boxes"
_RSYNC, _PULL, _AGAIN = "rsync -a", "boxstrap pull", "  with nothing to do"
_OF_RSYNC, _AGAIN_S, _ALL_S = 1.3, 3.0, 4.0
_MAKES = f"""\
import os, sys
for number in range(int(sys.argv[1])):
    os.makedirs(f"out/{{number % 100}}", exist_ok=True)
    with open(f"out/{{number % 100}}/{{number}}.bin", "wb") as file:
        file.write(os.urandom({_SIZE}))
"""
_PROFILE = """\
version: 1
extends: vast
gpu: {require: false}
train: {command: python make.py %s, results: [out/]}
"""


def measure(stage: Stage, runs: int) -> list[BenchRow]:
    """Measure; each turn has a file system of its own, and the files to pull are in memory."""
    near = stage.box("vast")
    repository = _made(stage, "many", [near], _FILES)
    source = f"box:/workspace/{repository.name}/out/"
    found: dict[str, list[float]] = {name: [] for name in (_RSYNC, _PULL, _AGAIN)}
    for turn in range(runs + 1):
        with _fresh(stage, f"rsync-{turn}") as here:
            took = [clock.run(_rsync(stage, near, source, here), stage.file("many.out"))]
        _forget(stage)
        with _fresh(stage, f"pull-{turn}") as here:
            pull = _call(stage, [near], repository, "pull", "--to", str(here))
            took += [clock.run(pull, stage.file("many.out")) for _ in range(2)]
        for name, seconds in zip(found, took, strict=True):
            found[name] += [seconds] if turn else []  # the first turn warms both
        tell(f"many: {took}")
    ratio = [pull / rsync for pull, rsync in zip(found[_PULL], found[_RSYNC], strict=True)]
    bars = {_AGAIN: Bar(_AGAIN_S)}
    rows = [BenchRow(_GROUP, name, took, bar=bars.get(name)) for name, took in found.items()]
    rows.insert(2, BenchRow(_GROUP, "  of rsync's time", ratio, "x", Bar(_OF_RSYNC)))
    return [*rows, BenchRow(_SMALL, "boxstrap pull --all", _small(stage, runs), bar=Bar(_ALL_S))]


@contextlib.contextmanager
def _fresh(stage: Stage, name: str) -> Iterator[Path]:
    """Yield a folder on a new ext4, in memory: where others remove files, as tests do on this disk,
    ext4 creates them several times slower."""
    place, image = stage.file(name), Path("/dev/shm", f"{stage.folder.name}.ext4")
    place.mkdir()
    try:
        with image.open("wb") as file:
            file.truncate(10**9)
        # With inodes for all, and nothing left to write to it later.
        make = ["mkfs.ext4", "-q", "-F", "-N", "65536", "-E", "lazy_itable_init=0"]
        subprocess.run([*make, str(image)], check=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True)
        try:
            os.sync()
            yield place / "results"
        finally:
            subprocess.run(["umount", str(place)], check=True)
    finally:
        image.unlink()


def _forget(stage: Stage) -> None:
    """Remove what is noted of earlier pulls: each is to be the first of its run."""
    state = stage.folder / "state" / "many" / "boxstrap"
    for noted in ("boxes/*/pulls", "boxes/*/receipts", "runs"):
        for folder in state.glob(noted):
            shutil.rmtree(folder)


def _small(stage: Stage, runs: int) -> list[float]:
    places = [stage.box("vast") for _ in range(2)]
    repository = _made(stage, "small", places, 3)
    for number in range(2, _RUNS):
        call = _call(stage, places[number % 2 :][:1], repository, "run", "--", "python", "make.py")
        clock.run(TimedCall([*call.argv, str(number)], call.env, call.cwd), stage.file("many.out"))
    took = []
    for turn in range(runs + 1):
        pull = _call(stage, places, repository, "pull", "--all")
        took.append(clock.run(pull, stage.file("many.out")))
        (repository / "boxstrap-results").rename(stage.file(f"small-{turn}"))
        tell(f"{_SMALL}: {took[-1]:.2f} s")
    return took[1:]


def _made(stage: Stage, name: str, places: list[StagePlace], count: int) -> Path:
    """Return a repository whose training has made so many files on each of these boxes."""
    texts = {"make.py": _MAKES, "boxstrap.yaml": _PROFILE % count, ".gitignore": "out/\n"}
    repository = stage.repository(name, texts)
    for words in ("setup", "wait"):
        clock.run(_call(stage, places, repository, words), stage.file("many.out"))
    return repository


def _call(stage: Stage, places: list[StagePlace], repository: Path, *words: str) -> TimedCall:
    hosts = [word for place in places for word in ("--host", place.host)]
    there = (*hosts, "--identity", str(places[0].box.identity))
    return stage.boxstrap(words[0], *there, *words[1:], state="many", repository=repository)


def _rsync(stage: Stage, place: StagePlace, source: str, here: Path) -> TimedCall:
    words = ["rsync", "-a", "-e", f"ssh -F {place.ssh_config}", source, f"{here}/"]
    return TimedCall(words, stage.environment(), stage.folder)
