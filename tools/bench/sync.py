"""`sync`: one changed file, near and 100 ms away; a watched save; a large first send."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import psutil

from tools.bench import clock
from tools.bench.clock import BenchError, Stopwatch, TimedCall
from tools.bench.competitors import ssh_true
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

_ONE = "sync of one changed file: until the command is back"
_WATCH = "sync --watch: from the save until the file is there"
_FIRST = "first send of 300 MB in 20,000 files, checkout excepted"
_NOTHING, _TRUE, _SYNC = "setup, nothing to do", "ssh host true", "boxstrap sync"
_MORE_S = {False: 0.15, True: 0.3}
_SAVE_S = {False: 0.3, True: 0.4}
_FACTOR, _MORE_MB = 1.2, 20
_FILES, _BYTES = 20_000, 15_000
_NO_TRAINING = "version: 1\nextends: vast\ngpu: {require: false}\n"
_TREE = "workspace/{name}"


def measure(stage: Stage, runs: int) -> list[BenchRow]:
    """Measure everything on one box, which is set up for each repository."""
    near = stage.box("vast")
    repository = stage.repository("edited", {"boxstrap.yaml": _NO_TRAINING, "train.py": "1\n"})
    places = {False: near, True: stage.far(near)}
    found: dict[tuple[bool, str], list[float]] = defaultdict(list)
    for is_far, place in places.items():
        _boxstrap(stage, place, repository, "setup")
        for turn in range(runs + 1):
            took = {
                _NOTHING: _boxstrap(stage, place, repository, "setup"),
                _TRUE: clock.run(ssh_true(stage, place), stage.file("true.out")),
            }
            if turn:  # the first turn is the first contact at this address
                for name, seconds in took.items():
                    found[is_far, name].append(seconds)
        for turn in range(runs + 1):
            (repository / "train.py").write_text(f"print({is_far}, {turn})\n")
            seconds = _boxstrap(stage, place, repository, "sync")
            if turn:
                found[is_far, _SYNC].append(seconds)
        found[is_far, _WATCH] = _watched(stage, place, repository, runs)
        tell(f"sync, {'100 ms away' if is_far else 'near'}: {runs} of each")
    return [*_rows(found), *_first_send(stage, near)]


def _call(stage: Stage, place: StagePlace, repository: Path, *words: str) -> TimedCall:
    there = ("--host", place.host, "--identity", str(place.box.identity))
    state = place.ssh_config.stem
    return stage.boxstrap(*words, *there, state=f"sync-{state}", repository=repository)


def _boxstrap(stage: Stage, place: StagePlace, repository: Path, *words: str) -> float:
    return clock.run(_call(stage, place, repository, *words), stage.file("sync.out"))


def _watched(stage: Stage, place: StagePlace, repository: Path, runs: int) -> list[float]:
    """Return the seconds of each save; the box's file is read from here, through its root."""
    call = _call(stage, place, repository, "sync", "--watch")
    there = place.box.root / _TREE.format(name=repository.name) / "train.py"
    found: list[float] = []
    with stage.file("watch.out").open("wb") as said:
        process = subprocess.Popen(
            call.argv, env=call.env, cwd=call.cwd, stdout=said, stderr=subprocess.STDOUT
        )
        try:
            _await(lambda: b"watching" in stage.file("watch.out").read_bytes())
            for turn in range(runs + 1):
                time.sleep(0.7)
                text = f"print('saved', {time.time()}, {turn})\n"
                began = time.perf_counter()
                (repository / "train.py").write_text(text)
                _await(partial(_holds, there, text))
                if turn:
                    found.append(time.perf_counter() - began)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
    return found


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text() == text
    except FileNotFoundError:  # git removes the old one first
        return False


def _await(there: Callable[[], bool], limit: float = 30) -> None:
    end = time.perf_counter() + limit
    while not there():
        if time.perf_counter() > end:
            raise BenchError("sync --watch: nothing arrived")
        time.sleep(0.002)


def _first_send(stage: Stage, near: StagePlace) -> list[BenchRow]:
    """Send the same commit to the same box, by `git push` and by `sync`, until its ref is there."""
    _, small = _sent(stage, near, "small", _FILES // 10)
    repository = _committed(stage, near, "large", _FILES)
    near.box.run("git init -q --bare ~/pushed.git", user=near.box.user)
    ssh = f"core.sshCommand=ssh -F {near.ssh_config}"
    push = ["git", "-c", ssh, "push", "-q", "box:pushed.git", "main"]
    tell("git push of 300 MB")
    pushed = clock.run(TimedCall(push, stage.environment(), repository), stage.file("push.out"))
    sent, memory = _synced(stage, near, repository)
    bar = Bar(_FACTOR * pushed, f"{_FACTOR} of git push")
    more = Bar(small + _MORE_MB, f"that of 30 MB + {_MORE_MB} MB")
    return [
        BenchRow(_FIRST, "git push", [pushed]),
        BenchRow(_FIRST, _SYNC, [sent], bar=bar),
        BenchRow(_FIRST, "  its memory, for 30 MB", [small], "MB", digits=0),
        BenchRow(_FIRST, "  its memory", [memory], "MB", digits=0, bar=more),
    ]


def _sent(stage: Stage, near: StagePlace, name: str, files: int) -> tuple[float, float]:
    return _synced(stage, near, _committed(stage, near, name, files))


def _committed(stage: Stage, near: StagePlace, name: str, files: int) -> Path:
    """Make a repository that was set up, and has gained many files since."""
    repository = stage.repository(name, {"boxstrap.yaml": _NO_TRAINING, "train.py": f"{files}\n"})
    _boxstrap(stage, near, repository, "setup")
    chance = random.Random(3)
    for number in range(files):
        path = repository / "data" / str(number % 200) / f"{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(_BYTES))
    stage.commit_all(repository)
    return repository


def _synced(stage: Stage, near: StagePlace, repository: Path) -> tuple[float, float]:
    """Return the seconds until its ref is in the box's store, and the peak memory in MB."""
    call = _call(stage, near, repository, "sync")
    store = near.box.root / "workspace/.boxstrap/store"
    known = set(store.glob("*/refs/boxstrap/*"))
    tell(f"sync of {repository.name}")
    began = time.perf_counter()
    watch = Stopwatch(lambda: bool(set(store.glob("*/refs/boxstrap/*")) - known))
    watch.start()
    memory = _memory(call, stage.file("sync.out"))
    return watch.wait(1) - began, memory


def _memory(call: TimedCall, log: Path) -> float:
    """Return the peak memory of the program and its gits together, mapped files included, in MB."""
    most = 0
    with log.open("wb") as said:
        process = psutil.Popen(
            call.argv, env=call.env, cwd=call.cwd, stdout=said, stderr=subprocess.STDOUT
        )
        while process.poll() is None:
            most = max(most, _held(process))
            time.sleep(0.02)
    if process.returncode:
        raise BenchError(f"sync: exit {process.returncode}\n{log.read_text()[-2000:]}")
    return most / 1e6


def _held(process: psutil.Process) -> int:
    held = 0
    with contextlib.suppress(psutil.Error):
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):  # it has ended
                held += each.memory_info().rss
    return held


def _rows(found: dict[tuple[bool, str], list[float]]) -> list[BenchRow]:
    rows = []
    for is_far in (False, True):
        where = ", 100 ms away" if is_far else ""
        basis = _TRUE if is_far else _NOTHING
        limit = median(found[is_far, basis]) + _MORE_S[is_far]
        bar = Bar(limit, f"{basis} + {_MORE_S[is_far]} s")
        rows += [
            BenchRow(_ONE, f"{name}{where}", found[is_far, name]) for name in (_TRUE, _NOTHING)
        ]
        rows.append(BenchRow(_ONE, f"{_SYNC}{where}", found[is_far, _SYNC], bar=bar))
    for is_far, limit in _SAVE_S.items():
        name = "boxstrap, 100 ms away" if is_far else "boxstrap, near"
        rows.append(BenchRow(_WATCH, name, found[is_far, _WATCH], bar=Bar(limit)))
    return rows
