"""Test whether each GPU computes correctly, and as fast as its model should.

Starts `stress.py` in the environment of the training, once for each GPU, all at the same time,
while `top_stream.py` samples them; then `together.py`, if there are several GPUs and each is well.
`judge.py` judges the results by `peaks.py`. They are added to
the document that `verify.py` wrote, as checks and reasons whose name starts with "smoke".
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .. import MAIN
from ..python import torch_compat
from ..verdict.check import NA, PASS, RETURN, WARN
from ..verdict.expected_hardware import parse_expected
from ..verdict.judge import SMOKE, CheckResult, merged, verdict_of, with_profile_outcome
from ..verdict.verify import write
from .judge import GpuTrial, GroupTrial, judge_group, judge_trial

LIMIT = {"quick": 60.0, "full": 150.0}  # seconds until a worker is given up
TOGETHER = 20.0  # likewise for GPUs that talk to each other, from when they have their library
NO_P2P = "NCCL_P2P_DISABLE"
SAMPLES = '{"every": 0.1}'  # seconds


class SmokeTest(NamedTuple):
    """What is asked of it."""

    python: str
    """That of the environment to try the GPUs with."""
    mode: str
    order: str
    """The file of what was ordered, as JSON."""
    out: str
    """The file of the verdict to join, as `verify.py` wrote it."""
    device: str = "cuda"
    """`cpu`: the arithmetic alone."""
    limit: float | None = None
    """Seconds until a worker is given up."""
    trains: bool = False
    """Whether a training begins after it."""


class Worker(threading.Thread):
    """A program of one GPU in a process of its own, which sees some GPUs, and what it reported."""

    def __init__(self, gpu: dict[str, Any], seen: list[dict[str, Any]], command: list[str]) -> None:
        super().__init__(name=f"gpu {gpu['index']}", daemon=True)
        self.gpu = gpu
        self.parts: dict[str, Any] = {}
        self.began, self.over = time.time(), 0.0
        self.ended = ""
        self.ready = threading.Event()  # it has its library, or has ended
        self._whole = False
        uuids = [one["uuid"] for one in seen if one.get("uuid")]
        shown = {"CUDA_VISIBLE_DEVICES": ",".join(uuids)} if uuids else {}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONWARNINGS": "ignore", **shown},
            start_new_session=True,
        )
        self.start()

    def go(self, limit: float) -> None:
        """Let it begin, and kill it after `limit` seconds."""
        self._limit = limit
        self._clock = threading.Timer(limit, self._give_up)
        self._clock.daemon = True
        self._clock.start()
        self._tell(b"go\n")

    def drop(self) -> None:
        """Let it end without having begun."""
        self._tell(b"")

    def _tell(self, line: bytes) -> None:
        stdin = self._process.stdin
        with contextlib.suppress(OSError):  # it has ended
            if stdin:
                stdin.write(line)
                stdin.close()

    def run(self) -> None:
        for line in self._process.stdout or ():
            if line.endswith(b"\n"):
                self._take(line)
        self.over = time.time()
        self.ready.set()
        if not self._whole and not self.ended:
            self.ended = "crash"

    def _take(self, line: bytes) -> None:
        try:
            part, *value = json.loads(line)
        except ValueError:
            return  # printed by a library
        self._whole = part == "end"
        if not self._whole:
            self.parts[part] = value[0] if value else None
            if part == "library" and value:
                self.ready.set()

    def _give_up(self) -> None:
        self.ended = "hang"
        self._process.kill()

    def wait(self) -> None:
        """Wait until the process has ended; it is abandoned if being killed has no effect."""
        self.join(self._limit + 1)
        self._clock.cancel()
        if self.is_alive():
            self.ended, self.over = "hang", time.time()

    def trial(self, mode: str, samples: list[dict[str, Any]]) -> GpuTrial:
        index, name = self.gpu["index"], self.gpu["name"]
        return GpuTrial(index, name, mode, dict(self.parts), samples, self.ended)


class SampleStream:
    """`top_stream.py` in parallel with the workers, as a context manager that fills `samples`."""

    def __init__(self) -> None:
        self.samples: list[dict[str, Any]] = []

    def __enter__(self) -> SampleStream:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-B", MAIN, "runs.top_stream", "", SAMPLES],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        for line in self._process.stdout or ():
            with contextlib.suppress(ValueError):
                self.samples.append(json.loads(line))

    def __exit__(self, *_: object) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._reader.join(1)
        self._process.kill()

    def of(self, worker: Worker) -> Iterator[dict[str, Any]]:
        """Yield the samples of one GPU from the time of its test."""
        for sample in list(self.samples):
            if worker.began <= sample["t"] <= worker.over:
                yield from (g for g in sample["gpus"] if g.get("index") == worker.gpu["index"])


class Workers:
    """The processes of `together.py`, one a GPU, which import their library while others work."""

    def __init__(self, gpus: list[dict[str, Any]], asked: SmokeTest, *mode: str) -> None:
        self.meet = tempfile.mkdtemp(prefix="smoke-", dir=Path(asked.out).parent)
        command = [asked.python, "-B", MAIN, "smoke.together", "--device", asked.device, *mode]
        command += ["--size", str(len(gpus)), "--meet", self.meet]
        self._workers = [
            Worker(gpu, gpus, [*command, "--rank", str(rank)]) for rank, gpu in enumerate(gpus)
        ]

    def go(self, limit: float) -> list[dict[str, Any]]:
        """Let them work, for `limit` seconds at most; return what each reported, by part."""
        until = time.monotonic() + LIMIT["quick"]
        for worker in self._workers:
            worker.ready.wait(max(0.0, until - time.monotonic()))
        for worker in self._workers:
            worker.go(limit)
        for worker in self._workers:
            worker.wait()
        shutil.rmtree(self.meet, ignore_errors=True)
        return [{**worker.parts, "ended": worker.ended} for worker in self._workers]

    def drop(self) -> None:
        for worker in self._workers:
            worker.drop()
        shutil.rmtree(self.meet, ignore_errors=True)


def try_all(
    gpus: list[dict[str, Any]], asked: SmokeTest
) -> tuple[list[GpuTrial], GroupTrial | None]:
    """Test each GPU, all at the same time, and then all together if each is well."""
    stress = [asked.python, "-B", MAIN, "smoke.stress", "--mode", asked.mode]
    stress += ["--device", asked.device, "--lock", f"{asked.out}.bus"]
    # NCCL knows no slices (MIG).
    several = len(gpus) > 1 and not any("MIG" in gpu["name"] for gpu in gpus)
    with SampleStream() as stream:
        workers = [Worker(gpu, [gpu], stress) for gpu in gpus]
        together = Workers(gpus, asked) if several else None
        for worker in workers:
            worker.go(asked.limit or LIMIT[asked.mode])
        for worker in workers:
            worker.wait()
    trials = [worker.trial(asked.mode, list(stream.of(worker))) for worker in workers]
    if together is None:
        return trials, None
    if any(trial.ended or not trial.value("start") for trial in trials):
        together.drop()
        return trials, None
    return trials, try_together(together, gpus, asked)


def try_together(together: Workers, gpus: list[dict[str, Any]], asked: SmokeTest) -> GroupTrial:
    """Let all GPUs talk; if they fail, find the pair, and try without peer-to-peer access."""
    group = GroupTrial([gpu["index"] for gpu in gpus], together.go(TOGETHER))
    if not group.failure() or os.environ.get(NO_P2P) == "1":
        return group
    group.pairs = Workers(gpus, asked, "--pairs").go(TOGETHER)
    os.environ[NO_P2P] = "1"
    group.without = GroupTrial(group.gpus, Workers(gpus, asked).go(TOGETHER))
    del os.environ[NO_P2P]
    return group


def judged(
    trials: list[GpuTrial],
    group: GroupTrial | None,
    target: torch_compat.CudaTarget,
    device: str,
    links: bool,
) -> list[CheckResult]:
    """Return the results of all GPUs; an environment that doesn't fit them is the only result."""
    if all(trial.parts.get("library") == {} for trial in trials):
        read = "NVML alone: neither torch nor CuPy is in the environment"
        return [CheckResult(SMOKE[0], None, NA, read)]
    misfit = misfit_of(trials, target) if device == "cuda" else None
    if misfit:
        advice = f"{misfit.advice[:1].upper()}{misfit.advice[1:]}."
        why = (misfit.says, misfit.code, advice, advice)
        return [CheckResult(SMOKE[0], None, WARN, "", "", *why)]
    results = [result for trial in trials for result in judge_trial(trial)]
    results += judge_group(group, trials[0].name, links) if group else []
    return sorted(results, key=lambda result: SMOKE.index(result.check))


def misfit_of(
    trials: list[GpuTrial], target: torch_compat.CudaTarget
) -> torch_compat.Misfit | None:
    """Return why the build of torch doesn't fit these GPUs, if it doesn't."""
    for trial in trials:
        library, start = trial.value("library"), trial.value("start")
        if not library or not library.get("name", "").startswith("torch"):
            continue
        cuda = torch_compat.version(library["cuda"]) if library["cuda"] else None
        built_for = start["built for"] if start else []
        found = torch_compat.misfit(target, cuda, library["name"])
        found = found or torch_compat.no_kernels(target, built_for, cuda)
        if found:
            return found
    return None


def has_links(document: dict[str, Any], gpus: list[dict[str, Any]]) -> bool:
    """Return whether each GPU has an NVLink that is up."""
    rows = [row for row in document["checks"] if row["check"] == "nvlink"]
    up = {row["gpu"] for row in rows if row["outcome"] == PASS}
    return all(gpu["index"] in up for gpu in gpus)


def joined(document: dict[str, Any], results: list[CheckResult]) -> dict[str, Any]:
    """Return the verdict with these results instead of those of an earlier smoke test."""
    plain = [result._replace(code=result.code.partition(" ")[0]) for result in results]
    reasons = [*others(document["reasons"]), *merged(plain)]
    reasons.sort(key=lambda reason: reason["outcome"] != RETURN)
    return {
        **document,
        "verdict": verdict_of(reasons),
        "reasons": reasons,
        "checks": [*others(document["checks"]), *(result.as_dict() for result in plain)],
    }


def others(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries that are not of a smoke test."""
    return [entry for entry in entries if entry["check"] not in SMOKE]


def summary(results: list[CheckResult], seconds: float) -> str:
    """Format the results as lines that start with a keyword; codes keep their numbers."""
    lines = [f"seconds {seconds:.1f}"]
    for result in results:
        which = "" if result.gpu is None else f"GPU {result.gpu}: "
        lines.append(f"{result.outcome} {result.check} {which}{result.says or result.read}")
        if result.code and result.outcome in (WARN, RETURN):
            lines.append(f"reason {result.outcome} {result.code}")
            lines.append(f"advice {result.advice}")
    return "\n".join(lines) + "\n"


def told(results: list[CheckResult], *, trains: bool) -> tuple[str, int]:
    """Return what the step tells of them (`report` in `step_report.py`), and the exit
    code: no training begins where its environment can't use the GPU, which returns no box."""
    warned, returned = ([r.code for r in results if r.outcome == of] for of in (WARN, RETURN))
    unusable = [code for code in warned if trains and code.startswith("torch-")]
    lines = [] if unusable else [f"warn code={code}\n" for code in warned if code]
    lines += [f"code {code}\n" for code in (unusable or returned)[:1]]
    return "".join(lines), 1 if unusable else 6 if returned else 0


def tested(asked: SmokeTest) -> tuple[str, int]:
    """Do it; return what there is to say, as lines for people like those of `verify.py`, and the
    exit code: 0 keep or warn, 6 return, 1 own error, or a training that can't begin."""
    began = time.monotonic()
    try:
        wanted = parse_expected(Path(asked.order).read_text("utf-8"))
        document = json.loads(Path(asked.out).read_text("utf-8"))
        target = torch_compat.read_target(Path(asked.out))
    except (OSError, ValueError, TypeError, KeyError) as error:
        return f"the smoke test can't run: {error}\n", 1
    answering = [gpu for gpu in document["gpus"] if gpu.get("name")]
    links = has_links(document, answering)
    results = judged(*try_all(answering, asked), target, asked.device, links)
    results = [with_profile_outcome(result, wanted) for result in results]
    write(joined(document, results), asked.out)
    said, code = told(results, trains=asked.trains)
    return summary(results, time.monotonic() - began) + said, code
