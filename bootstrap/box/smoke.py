"""Does each GPU compute right, and as fast as its model should? `python box/smoke.py …`

Starts `burn.py` in the environment of the training, once for each GPU, all at the same time,
while `watch.py` looks at them; `grade.py` judges. What it finds joins the verdict that
`verdict.py` wrote: checks and reasons whose name begins with "smoke". Standard output gets lines
for people and for sed, as of `verdict.py`. Exit code: 0 keep or warn, 6 return, 1 own error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
if not __package__:  # run as a file: PEP 366
    sys.path[0], __package__ = str(HERE.parent), HERE.name

from . import fits  # noqa: E402
from .check import NA, RETURN, WARN  # noqa: E402
from .checks import SMOKE  # noqa: E402
from .grade import Tried, grade  # noqa: E402
from .judge import Row, merged, weighed  # noqa: E402
from .order import parse_order  # noqa: E402

LIMIT = {"quick": 60.0, "full": 150.0}  # seconds until a worker is given up
LOOK_EVERY = 0.1  # seconds


class Worker(threading.Thread):
    """One GPU at work: `burn.py` in a process of its own, and what it said."""

    def __init__(self, gpu: dict[str, Any], command: list[str], limit: float) -> None:
        super().__init__(name=f"gpu {gpu['index']}", daemon=True)
        self.gpu = gpu
        self.parts: dict[str, Any] = {}
        self.began, self.over = time.time(), 0.0
        self.ended = ""
        self._whole = False
        self._limit = limit
        shown = {"CUDA_VISIBLE_DEVICES": gpu["uuid"]} if gpu.get("uuid") else {}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONWARNINGS": "ignore", **shown},
            start_new_session=True,
        )
        self.start()

    def run(self) -> None:
        """Read to the end. What hangs is killed, and left behind where even that has no effect."""
        clock = threading.Timer(self._limit, self._give_up)
        clock.daemon = True
        clock.start()
        for line in self._process.stdout or ():
            if line.endswith(b"\n"):
                self._take(line)
        clock.cancel()
        self.over = time.time()
        if not self._whole and not self.ended:
            self.ended = "crash"

    def _take(self, line: bytes) -> None:
        try:
            part, *value = json.loads(line)
        except ValueError:
            return  # a library that prints
        self._whole = part == "end"
        if not self._whole:
            self.parts[part] = value[0] if value else None

    def _give_up(self) -> None:
        self.ended = "hang"
        self._process.kill()

    def wait(self) -> None:
        """Until it is over, or given up."""
        self.join(self._limit + 1)
        if self.is_alive():
            self.ended, self.over = "hang", time.time()


class Watch:
    """`watch.py` beside the workers. A context manager; `looks` are there afterwards."""

    def __init__(self) -> None:
        self.looks: list[dict[str, Any]] = []

    def __enter__(self) -> Watch:
        self._process = subprocess.Popen(
            [sys.executable, "-B", str(HERE / "watch.py"), "--every", str(LOOK_EVERY)],
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
                self.looks.append(json.loads(line))

    def __exit__(self, *_: object) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._reader.join(1)
        self._process.kill()

    def of(self, worker: Worker) -> Iterator[dict[str, Any]]:
        """The looks at one GPU while it worked."""
        for look in list(self.looks):
            if worker.began <= look["t"] <= worker.over:
                yield from (g for g in look["gpus"] if g.get("index") == worker.gpu["index"])


def try_all(gpus: list[dict[str, Any]], options: argparse.Namespace) -> list[Tried]:
    """Work all GPUs at once."""
    burn = [options.python, "-B", str(HERE / "burn.py"), "--mode", options.mode]
    burn += ["--device", options.device, "--lock", f"{options.out}.bus"]
    with Watch() as watch:
        workers = [Worker(gpu, burn, options.limit or LIMIT[options.mode]) for gpu in gpus]
        for worker in workers:
            worker.wait()
    return [
        Tried(
            index=worker.gpu["index"],
            name=worker.gpu["name"],
            mode=options.mode,
            parts=dict(worker.parts),
            samples=list(watch.of(worker)),
            ended=worker.ended,
        )
        for worker in workers
    ]


def judged(tried: list[Tried], gpu: fits.Gpu, device: str) -> list[Row]:
    """The rows of all GPUs; an environment that doesn't fit them is said once, and alone."""
    if all(one.parts.get("library") == {} for one in tried):
        read = "NVML alone: neither torch nor CuPy is in the environment"
        return [Row(SMOKE[0], None, NA, read)]
    unfit = unfitting(tried, gpu) if device == "cuda" else None
    if unfit:
        advice = f"{unfit.advice[:1].upper()}{unfit.advice[1:]}."
        return [Row(SMOKE[0], None, WARN, "", "", unfit.says, unfit.code, advice, advice)]
    rows = [row for one in tried for row in grade(one)]
    return sorted(rows, key=lambda row: SMOKE.index(row.check))


def unfitting(tried: list[Tried], gpu: fits.Gpu) -> fits.Misfit | None:
    """What the build of torch lacks for these GPUs."""
    for one in tried:
        library, start = one.value("library"), one.value("start")
        if not library or not library.get("name", "").startswith("torch"):
            continue
        cuda = fits.version(library["cuda"]) if library["cuda"] else None
        found = fits.misfit(gpu, cuda, library["name"])
        found = found or fits.no_kernels(gpu, start["built for"] if start else [], cuda)
        if found:
            return found
    return None


def joined(document: dict[str, Any], rows: list[Row]) -> dict[str, Any]:
    """The verdict with these rows in the place of those of an earlier smoke test."""
    plain = [row._replace(code=row.code.partition(" ")[0]) for row in rows]
    reasons = [*others(document["reasons"]), *merged(plain)]
    reasons.sort(key=lambda reason: reason["outcome"] != RETURN)
    checks = [dict(zip(Row._fields[:6], row[:6])) for row in plain]  # noqa: B905
    return {
        **document,
        "verdict": reasons[0]["outcome"] if reasons else "keep",
        "reasons": reasons,
        "checks": [*others(document["checks"]), *checks],
    }


def others(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is not of a smoke test."""
    return [row for row in rows if row["check"] not in SMOKE]


def summary(rows: list[Row], seconds: float) -> str:
    """What was found, in lines, a word first in each; codes with their numbers."""
    lines = [f"seconds {seconds:.1f}"]
    for row in rows:
        which = "" if row.gpu is None else f"GPU {row.gpu}: "
        lines.append(f"{row.outcome} {row.check} {which}{row.says or row.read}")
        if row.code and row.outcome in (WARN, RETURN):
            lines.append(f"reason {row.outcome} {row.code}")
            lines.append(f"advice {row.advice}")
    return "\n".join(lines) + "\n"


def write(file: str, document: dict[str, Any]) -> None:
    """Whole or not at all."""
    new = Path(f"{file}.new")
    new.write_text(json.dumps(document) + "\n", "utf-8")
    new.replace(file)


def main() -> int:
    """Try, judge, join."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="of the environment to try them with")
    parser.add_argument("--mode", choices=sorted(LIMIT), required=True)
    parser.add_argument("--order", required=True, help="what was ordered, as JSON")
    parser.add_argument("--out", required=True, help="the verdict to join, as verdict.py wrote it")
    parser.add_argument("--device", default="cuda", help="cpu: the arithmetic alone")
    parser.add_argument("--limit", type=float, help="seconds until a worker is given up")
    options = parser.parse_args()
    began = time.monotonic()
    try:
        order = parse_order(Path(options.order).read_text("utf-8"))
        document = json.loads(Path(options.out).read_text("utf-8"))
        gpu = fits.read_gpu(Path(options.out))
    except (OSError, ValueError, TypeError, KeyError) as error:
        sys.stderr.write(f"the smoke test can't be made: {error}\n")
        return 1
    rows = judged(try_all(whole(document), options), gpu, options.device)
    rows = [weighed(row, order) for row in rows]
    result = joined(document, rows)
    write(options.out, result)
    sys.stdout.write(summary(rows, time.monotonic() - began))
    return 6 if any(row.outcome == RETURN for row in rows) else 0


def whole(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The GPUs that can be tried: those that answer."""
    return [gpu for gpu in document["gpus"] if gpu.get("name")]


if __name__ == "__main__":
    sys.exit(main())
