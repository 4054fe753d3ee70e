"""From the command to the verdict, without the smoke test, on boxes with a stand-in for NVML."""

from __future__ import annotations

import os
from pathlib import Path

from tests.nvml import scenarios, stub
from tools.bench import clock, quiet
from tools.bench.stage import Stage, StagePlace
from tools.bench.table import Bar, BenchRow
from tools.bench.tell import tell

GROUP = "verify: from the command to the verdict, 8 GPUs, no smoke test"
_CARDS = f"{scenarios.H100}\ncount = 8\n"
_FRESH_S, _THERE_S, _NVML_S = 6.0, 1.5, 2.0
_READ = (
    "NVML_SCENARIO=/etc/nvml-scenario {home}/agent/bin/python -B"
    " {home}/box/current/onbox verdict.gpu_reader"
)
_HOME = "/workspace/.boxstrap"


def measure(stage: Stage, runs: int, again: int, patience: float) -> list[BenchRow]:
    """Measure fresh boxes, then the last *vast* one repeatedly, then reading the GPUs alone."""
    if stub.compiler() is None:
        raise clock.BenchError("the stand-in for NVML needs a C compiler")
    library = stub.build_library(stage.folder).read_bytes()
    with_uv, place = _fresh(stage, "vast", library, runs, patience)
    without, _ = _fresh(stage, "vast-nouv", library, runs, patience)
    there: list[float] = []
    for turn in range(again + 1):
        took = _verify(stage, place)
        if turn:
            there.append(took)
    inside = ("nsenter", "-t", str(place.box._alive()), "-m", "-n", "-p", "--", "sh", "-c")
    read = clock.TimedCall([*inside, _READ.format(home=_HOME)], stage.environment(), stage.folder)
    alone = [clock.run(read, stage.file("read.out")) for _ in range(again)]
    place.box.stop()
    return [
        BenchRow(GROUP, "fresh box, tools to install", with_uv, bar=Bar(_FRESH_S)),
        BenchRow(GROUP, "fresh box, uv and tools to install", without, bar=Bar(_FRESH_S)),
        BenchRow(GROUP, "tools are there", there, bar=Bar(_THERE_S)),
        BenchRow(GROUP, "reading NVML alone, on the box", alone, bar=Bar(_NVML_S)),
    ]


def _fresh(
    stage: Stage, kind: str, library: bytes, runs: int, patience: float
) -> tuple[list[float], StagePlace]:
    took: list[float] = []
    for turn in range(runs + 1):
        place = _box(stage, kind, library)
        quiet.wait(patience)
        seconds = _verify(stage, place)
        if turn:  # the first one fills the mirror
            took.append(seconds)
        if turn < runs or kind != "vast":
            place.box.stop()
    tell(f"verify on a fresh {kind} box: {runs} times")
    return took, place


def _box(stage: Stage, kind: str, library: bytes) -> StagePlace:
    place = stage.box(kind)
    root = Path(f"/proc/{place.box._alive()}/root")
    (root / f"usr/lib/{os.uname().machine}-linux-gnu" / stub.LIBRARY).write_bytes(library)
    place.box.write("/etc/nvml-scenario", _CARDS)
    return place


def _verify(stage: Stage, place: StagePlace) -> float:
    words = ("verify", "--host", place.host, "--identity", str(place.box.identity))
    asked = ("--set", "gpu.require=true", "--set", "gpu.count=8", "--set", "gpu.name=H100")
    call = stage.boxstrap(*words, *asked, state=place.ssh_config.stem)
    return clock.run(call, stage.file("verify.out"))
