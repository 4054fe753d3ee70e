"""Looks at the box again and again: its GPUs through NVML, itself through psutil, its newest run.

`python box/watch.py --every 2 --runs RUNS` writes one JSON object a line:
{"v": 1, "t", "host": {cpus, cpu, memory_used, memory_total, disk_free, disk_total},
"gpus": [{index, uuid, name, load, memory_used, memory_total, power, power_limit, temperature,
clock, clock_max, throttle, pcie_gen, pcie_width, processes: [{pid, name, memory}]}],
"error", "run": {name, repo, state, rc, last}}. Bytes, watts, °C, MHz, percent; `throttle` are
NVML's bits; null is "not told". It ends when nobody reads, or when its standard input ends.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
if not __package__:  # run as a file: PEP 366
    sys.path[0], __package__ = str(HERE.parent), HERE.name

from .nvml import GPU, ask, load_library  # noqa: E402
from .order import parse_order  # noqa: E402

VERSION = 1
TAIL = 4096  # bytes of a log in which its last line is looked for
MOST_PROCESSES = 16

CLOCK = [("nvmlDeviceGetClockInfo", 1)]  # of the streaming multiprocessors
CLOCK_MAX = [("nvmlDeviceGetMaxClockInfo", 1)]
POWER = [("nvmlDeviceGetPowerUsage",)]
PROCESSES = [("nvmlDeviceGetComputeRunningProcesses",)]


def told(value: Any) -> Any:  # noqa: ANN401 - whatever NVML answers
    """A reading, or None where it failed."""
    return None if isinstance(value, dict) and "error" in value else value


def watts(value: Any) -> float | None:  # noqa: ANN401
    """NVML's milliwatts."""
    known = told(value)
    return None if known is None else round(known / 1000, 1)


class Card:
    """One GPU."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.handle = ask([("nvmlDeviceGetHandleByIndex", index)])
        self.still: dict[str, Any] = {"index": index}
        if told(self.handle) is not None:
            self.still["uuid"] = told(ask(GPU["uuid"], self.handle))
            self.still["name"] = told(ask(GPU["name"], self.handle))
            self.still["power_limit"] = watts(ask(GPU["power_limit"], self.handle))
            self.still["clock_max"] = told(ask(CLOCK_MAX, self.handle))

    def look(self, names: dict[int, str]) -> dict[str, Any]:
        """How it is now; `names` keeps the names of its processes."""
        if told(self.handle) is None:
            return {**self.still, "error": self.handle["error"]}
        memory = ask(GPU["memory"], self.handle)
        if "error" in memory:
            return {**self.still, "error": memory["error"]}
        load = told(ask(GPU["load"], self.handle))
        return {
            **self.still,
            "load": load["gpu"] if load else None,
            "memory_used": memory["used"],
            "memory_total": memory["total"],
            "power": watts(ask(POWER, self.handle)),
            "temperature": told(ask(GPU["temperature"], self.handle)),
            "clock": told(ask(CLOCK, self.handle)),
            "throttle": told(ask(GPU["throttle"], self.handle)),
            "pcie_gen": told(ask(GPU["pcie_gen"], self.handle)),
            "pcie_width": told(ask(GPU["pcie_width"], self.handle)),
            "processes": self.processes(names),
        }

    def processes(self, names: dict[int, str]) -> list[dict[str, Any]]:
        """What computes on it; a process of another container has no name here."""
        found = told(ask(PROCESSES, self.handle)) or []
        rows = []
        for process in found[:MOST_PROCESSES]:
            if process.pid not in names:
                names[process.pid] = name_of(process.pid)
            rows.append(
                {
                    "pid": process.pid,
                    "name": names[process.pid],
                    "memory": process.usedGpuMemory,
                }
            )
        return rows


def name_of(pid: int) -> str:
    """The name of a process; "" where it can't be seen."""
    import psutil

    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return ""


class Box:
    """All that is looked at."""

    def __init__(self, runs: Path | None) -> None:
        self.runs = runs
        self.names: dict[int, str] = {}
        load_library()
        failure = ask([("nvmlInit",)])
        self.error = failure["error"] if failure and gpu_was_ordered(runs) else None
        count = told(ask([("nvmlDeviceGetCount",)])) if failure is None else 0
        self.cards = [Card(index) for index in range(count or 0)]

    def look(self) -> dict[str, Any]:
        """How everything is now."""
        return {
            "v": VERSION,
            "t": round(time.time(), 3),
            "host": host(self.runs) if self.runs else None,
            "gpus": [card.look(self.names) for card in self.cards],
            "error": self.error,
            "run": newest_run(self.runs) if self.runs else None,
        }


def gpu_was_ordered(runs: Path | None) -> bool:
    """Whether the last setup required a GPU; where it can't be told, it did."""
    try:
        return runs is None or parse_order((runs.parent / "gpu.order").read_text()).require
    except (OSError, ValueError, TypeError):
        return True


def host(folder: Path) -> dict[str, Any]:
    """The machine itself; the processor's load since the last look."""
    import psutil

    memory = psutil.virtual_memory()
    place = next(p for p in (folder, *folder.parents) if p.exists())
    disk = psutil.disk_usage(str(place))
    return {
        "cpus": psutil.cpu_count(),
        "cpu": psutil.cpu_percent(),
        "memory_used": memory.total - memory.available,
        "memory_total": memory.total,
        "disk_free": disk.free,
        "disk_total": disk.total,
    }


def newest_run(runs: Path) -> dict[str, Any] | None:
    """The run that was begun last, and the last line of its log."""
    found = [folder for folder in runs.glob("*/*") if (folder / "started").is_file()]
    if not found:
        return None
    run = max(found, key=lambda folder: (folder / "started").stat().st_mtime)
    code = text_of(run / "exit").strip()
    state = "finished" if code else ("running" if is_alive(run / "pid") else "died")
    return {
        "name": run.name,
        "repo": run.parent.name,
        "state": state,
        "rc": int(code) if code.isdigit() else None,
        "last": last_line(run / "log"),
    }


def is_alive(pids: Path) -> bool:
    """Whether one of the processes that are written down is there, as `run_state` decides it."""
    for line in text_of(pids).splitlines():
        pid, *rest = line.split()
        stat = text_of(Path("/proc", pid, "stat")).rpartition(")")[2].split()
        if stat and stat[0] != "Z" and rest[:1] == stat[19:20]:
            return True
    return False


def text_of(file: Path) -> str:
    """A small file's text; "" where it can't be read."""
    try:
        return file.read_text("utf-8", "replace")
    except OSError:
        return ""


def last_line(log: Path) -> str:
    """The last line that says something; of a progress bar, what it shows now."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.replace("\r", "\n").split("\n")]
    return next((line for line in reversed(lines) if line), "")[:500]


def main() -> None:
    """Look, tell, wait."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two looks")
    parser.add_argument("--runs", type=Path, help="the folder of the runs; without it GPUs alone")
    options = parser.parse_args()
    box = Box(options.runs)
    while True:
        began = time.monotonic()
        os.write(1, json.dumps(box.look()).encode() + b"\n")
        rest = max(0.01, options.every - (time.monotonic() - began))
        ready, _, _ = select.select([0], [], [], rest)
        if ready and not os.read(0, 4096):
            return


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        os._exit(0)
