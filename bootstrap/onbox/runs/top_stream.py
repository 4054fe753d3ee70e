"""Sample the box repeatedly: its GPUs (NVML), the machine (psutil), its newest and its live runs.

`onbox runs.top_stream BOX_HOME {"every": 2}` writes one JSON object per line, without BOX_HOME of
the GPUs alone:
{"v": 1, "t", "host": {cpus, cpu, memory_used, memory_total, disk_free, disk_total},
"gpus": [{index, uuid, name, load, memory_used, memory_total, power, power_limit, temperature,
clock, clock_max, throttle, pcie_gen, pcie_width, processes: [{pid, name, memory, run}]}],
"error", "run": {name, repo, state, rc, last, metric}, "others": [the same of each other live run],
"low": the `disk_low` of a live run}. Bytes, watts, °C, MHz, percent; `throttle` are NVML's bits;
null is "not known"; the `run` of a process is REPO/NAME of the run that it belongs to. It ends when
its output is closed or its standard input ends.
"""

from __future__ import annotations

import json
import os
import select
import site
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..metrics import newest, read_patterns
from ..redact import Redactor, redactor_of_box
from ..run_folder import RunFolder, end_of, read_secrets
from ..runs.disk_watch import NAME
from ..step_report import question
from ..verdict.expected_hardware import parse_expected
from ..verdict.gpu_reader import GPU, INIT, NO_LIBRARY, ask, load_library

VERSION = 1
TAIL = 32 * 1024  # bytes of a log that are searched for its last lines
MOST_PROCESSES = 16
MOST_RUNS = 16
MOST_TOLD = 2048  # characters of what is told of a disk
FIRST_S = 0.2  # seconds over which the first sample's CPU load is measured

CLOCK = [("nvmlDeviceGetClockInfo", 1)]  # of the streaming multiprocessors
CLOCK_MAX = [("nvmlDeviceGetMaxClockInfo", 1)]
POWER = [("nvmlDeviceGetPowerUsage",)]
PROCESSES = [("nvmlDeviceGetComputeRunningProcesses",)]
PLAIN = ("throttle", "pcie_gen", "pcie_width")  # shown as NVML answers


def known(value: Any) -> Any:  # noqa: ANN401 - whatever NVML answers
    """Return a reading, or None if it failed."""
    return None if isinstance(value, dict) and "error" in value else value


def watts(value: Any) -> float | None:  # noqa: ANN401
    """Convert NVML's milliwatts to watts."""
    milliwatts = known(value)
    return None if milliwatts is None else round(milliwatts / 1000, 1)


class GpuSampler:
    def __init__(self, index: int) -> None:
        self.handle = ask([("nvmlDeviceGetHandleByIndex", index)])
        self.still: dict[str, Any] = {"index": index}
        if known(self.handle) is not None:
            self.still["uuid"] = known(ask(GPU["uuid"], self.handle))
            self.still["name"] = known(ask(GPU["name"], self.handle))
            self.still["power_limit"] = watts(ask(GPU["power_limit"], self.handle))
            self.still["clock_max"] = known(ask(CLOCK_MAX, self.handle))

    def sample(self, names: dict[int, str]) -> dict[str, Any]:
        """Return its values now, null where one isn't reported; `error` if none of them is.

        `names` caches the names of processes.
        """
        if known(self.handle) is None:
            return {**self.still, "error": self.handle["error"]}
        now = {
            **self.moving(),
            "clock": known(ask(CLOCK, self.handle)),
            **{key: known(ask(GPU[key], self.handle)) for key in PLAIN},
        }
        if all(value is None for value in now.values()):
            return {**self.still, "error": ask(GPU["memory"], self.handle).get("error")}
        return {**self.still, **now, "processes": self.processes(names)}

    def moving(self) -> dict[str, Any]:
        """Return load, memory, power and temperature; nothing if it doesn't answer."""
        if known(self.handle) is None:
            return {}
        held, load = (known(ask(GPU[key], self.handle)) for key in ("memory", "load"))
        return {
            "load": load["gpu"] if load else None,
            "memory_used": held["used"] if held else None,
            "memory_total": held["total"] if held else None,
            "power": watts(ask(POWER, self.handle)),
            "temperature": known(ask(GPU["temperature"], self.handle)),
        }

    def processes(self, names: dict[int, str]) -> list[dict[str, Any]]:
        """Return the processes that compute on it; those of another container have no name here."""
        rows = []
        for process in (known(ask(PROCESSES, self.handle)) or [])[:MOST_PROCESSES]:
            pid, memory = process.pid, process.usedGpuMemory
            if pid not in names:
                names[pid] = name_of(pid)
            rows.append({"pid": pid, "name": names[pid], "memory": memory, "run": run_of(pid)})
        return rows


def name_of(pid: int) -> str:
    """Return the name of a process; "" if it can't be seen."""
    import psutil

    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return ""


def run_of(pid: int) -> str:
    """Return the run that a process belongs to, by a variable in its environment; "" if none."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    marks = [one for one in environment if one.startswith(b"BOXSTRAP_RUN=")]
    return b"/".join(marks[0].rsplit(b"/", 2)[1:]).decode("utf-8", "replace") if marks else ""


class BoxSampler:
    """Samples the GPUs and, if the folder of runs is given, the machine and its runs."""

    def __init__(self, runs: Path | None) -> None:
        self.runs = runs
        self.names: dict[int, str] = {}
        failure = NO_LIBRARY if load_library() == "missing" else ask(INIT)
        self.error = failure["error"] if failure and gpu_is_required(runs) else None
        count = known(ask([("nvmlDeviceGetCount",)])) if failure is None else 0
        self.gpus = [GpuSampler(index) for index in range(count or 0)]

    def sample(self) -> dict[str, Any]:
        newest, *others = shown_runs(self.runs) if self.runs else [None]
        return {
            "v": VERSION,
            "t": round(time.time(), 3),
            "host": host(self.runs) if self.runs else None,
            "gpus": [gpu.sample(self.names) for gpu in self.gpus],
            "error": self.error,
            "run": newest,
            "others": others,
            "low": low_disk(self.runs) if self.runs else "",
        }


def gpu_is_required(runs: Path | None) -> bool:
    """Return whether the last setup required a GPU; True if that isn't known."""
    try:
        return runs is None or parse_expected((runs.parent / "gpu.order").read_text()).require
    except (OSError, ValueError, TypeError):
        return True


def host(folder: Path) -> dict[str, Any]:
    """Sample the machine itself; CPU load is measured since the last sample."""
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


def shown_runs(runs: Path) -> list[dict[str, Any] | None]:
    """Return the run that was started last, or None, and the others that are running."""
    found = [folder for folder in runs.glob("*/*") if (folder / "started").is_file()]
    found.sort(key=lambda folder: (folder / "started").stat().st_mtime, reverse=True)
    others = [run for run in found[1:] if RunFolder(run).is_running][:MOST_RUNS]
    # A machine of the user's that gave the box no secret names none.
    files = [f"{runs.parent}/{name}" for name in ("secrets", "secrets.earlier")]
    kept = [name for file in files for name, _ in read_secrets(file)]
    redactor = redactor_of_box(kept, str(runs.parent))
    return [about(run, redactor) for run in [*found[:1], *others]] or [None]


def about(run: Path, redactor: Redactor) -> dict[str, Any]:
    """Return a run's state, with the last line of its log."""
    state, _, code = RunFolder(run).state().partition(" ")
    end = redactor.text(end_of(run / "log", TAIL))
    own = run / "metrics"
    return {
        "name": run.name,
        "repo": run.parent.name,
        "state": state,
        "rc": int(code) if code.isdigit() else None,
        "last": last_line(end),
        "metric": newest(end, read_patterns(own.read_text() if own.exists() else "")),
    }


def low_disk(runs: Path) -> str:
    """Return what a live run is told of a disk that will soon be full, see `disk_watch.py`."""
    for file in runs.glob(f"*/*/{NAME}"):
        with suppress(OSError):
            if RunFolder(file.parent).is_running:
                return file.read_text("utf-8", "replace")[:MOST_TOLD]
    return ""


def last_line(text: str) -> str:
    """Return the last line that isn't blank; of a progress bar, what it shows now."""
    lines = [line.strip() for line in text.replace("\r", "\n").split("\n")]
    return next((line for line in reversed(lines) if line), "")[:500]


def sample_within(seconds: float) -> dict[str, Any]:
    """Return a sample of the GPUs, taken by a child process, which is left alone if a driver hangs;
    then it is empty."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        for handle in (0, 1, 2, reader):  # the caller waits until these are closed
            os.close(handle)
        try:
            with os.fdopen(writer, "wb") as out:
                out.write(json.dumps(BoxSampler(None).sample()).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writer)
    until, told = time.monotonic() + seconds, b""
    while select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]:
        piece = os.read(reader, 65536)
        if not piece:
            break
        told += piece
    with suppress(ValueError):
        return dict(json.loads(told))
    return {}


def main() -> None:
    """Sample, write, wait, until nobody reads."""
    home, asked = question()
    runs = Path(home, "runs") if home else None
    if sys.flags.no_site:
        site.main()  # what it imports late is in the agent's environment
    if runs:
        try:
            host(runs)
        except ImportError:  # not the agent's Python
            os.write(1, b'{"missing": true}\n')
            return
        time.sleep(FIRST_S)
    box = BoxSampler(runs)
    with suppress(BrokenPipeError):
        while True:
            began = time.monotonic()
            os.write(1, json.dumps(box.sample()).encode() + b"\n")
            rest = max(0.01, asked["every"] - (time.monotonic() - began))
            ready, _, _ = select.select([0], [], [], rest)
            if ready and not os.read(0, 4096):
                return
