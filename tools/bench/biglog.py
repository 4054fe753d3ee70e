"""10 GB of log from one run, followed live: disk, memory, and what `logs --since` shows."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from tools.bench import clock
from tools.bench.logs import follow
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

GROUP = "10 GB of log through one run"
_SIZE = 10_000_000_000
_LIMIT_MIB = 256
_MOST_MB = 2 * _LIMIT_MIB * 1.048576
"""Twice the limit: the log still grows while boxstrap makes room."""
_MOST_MEMORY_MB = 128
"""What following needs anyway, plus the data in transit when the follower skipped it."""
_RUN = "/workspace/.boxstrap/runs/*/train-1"
_PROFILE = f"""\
version: 1
extends: vast
gpu: {{require: false}}
train: {{command: python write.py, log_max_mib: {_LIMIT_MIB}}}
"""
# First at full speed with a time in each line, then slowly, so that the seconds differ.
_WRITE = f"""\
import sys, time
line = "TIME step {{n:7d}} loss {{loss:.4f}} lr 3e-4\\n"
body = "".join(line.format(n=n, loss=n % 977 / 1000) for n in range(20_000))
began, written = time.time(), 0
while written < {_SIZE}:
    block = body.replace("TIME", f"{{time.time():.3f}}")
    sys.stdout.write(block)
    written += len(block)
sys.stdout.flush()
took = time.time() - began
for number in range(80):
    print(f"{{time.time():.3f}} slow {{number}} took {{took:.3f}}", flush=True)
    time.sleep(0.1)
"""


def measure(stage: Stage) -> list[BenchRow]:
    """Start the run, follow it to its end, sampling its disk, then ask for its last seconds."""
    place = stage.box("vast")
    repository = stage.repository("biglog", {"boxstrap.yaml": _PROFILE, "write.py": _WRITE})
    words = ("--host", place.host, "--identity", str(place.box.identity))
    tell("a training that writes 10 GB")
    clock.run(
        stage.boxstrap("setup", *words, state="biglog", repository=repository),
        stage.file("biglog.out"),
    )
    found: list[float] = []
    sampler = threading.Thread(target=lambda: found.extend(_most_on_disk(place)))
    sampler.start()
    followed = follow(stage.boxstrap("logs", "-f", *words, state="biglog", repository=repository))
    sampler.join()
    began = time.perf_counter()
    outside = []
    for back in (2, 4):
        since = _last_time(place) - back
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))
        said = stage.file(f"since-{back}")
        call = stage.boxstrap(
            "logs", "--since", when, *words, state="biglog", repository=repository
        )
        clock.run(call, said)
        outside.append(_outside(said, _slow(place), int(since)))
    took = (time.perf_counter() - began) / 2
    speed = _SIZE / 1e6 / float(_slow(place)[-1].split()[-1])
    return [
        BenchRow(GROUP, "written at", [speed], "MB/s", digits=0),
        BenchRow(GROUP, "  most on disk", found, "MB", Bar(_MOST_MB), digits=0),
        BenchRow(
            GROUP,
            "boxstrap logs -f: its memory",
            [followed.memory_mb],
            "MB",
            Bar(_MOST_MEMORY_MB),
            digits=0,
        ),
        BenchRow(GROUP, "  of it came here", [followed.count / 1e6], "MB", digits=0),
        BenchRow(GROUP, "boxstrap logs --since", [took], "s"),
        BenchRow(GROUP, "  lines too many or missing", outside, "lines", Bar(0), digits=0),
    ]


def _most_on_disk(place: StagePlace) -> list[float]:
    """Return the peak size of its log on the box's disk until it ended, in MB."""
    look = f"while [ ! -f {_RUN}/exit ]; do stat -c %b {_RUN}/log; sleep 0.05; done"
    look = f"{look} | sort -n | tail -n 1"
    return [int(place.box.run(look, timeout=600)) * 512 / 1e6]


def _slow(place: StagePlace) -> list[str]:
    """Return the last lines of the log on the box."""
    return place.box.run(f"tail -n 80 {_RUN}/log").splitlines()


def _last_time(place: StagePlace) -> float:
    return float(_slow(place)[-1].split()[0])


def _outside(said: Path, slow: list[str], since: int) -> int:
    """Count lines since then that are not shown, and shown ones over two seconds older."""
    shown = [
        line for line in said.read_text().splitlines() if line[:1].isdigit() and " slow " in line
    ]
    wanted = [line for line in slow if float(line.split()[0]) >= since]
    early = [line for line in shown if float(line.split()[0]) < since - 2]
    return len(set(wanted) - set(shown)) + len(early) + (shown[-1] != slow[-1])
