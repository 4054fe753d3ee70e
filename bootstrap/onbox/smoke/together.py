"""Let the GPUs of a box talk to each other; one process for each, in the training's environment.

`onbox smoke.together --rank 0 --size 2 --meet FOLDER` imports the library, waits for a line on
standard input, and then adds up numbers over all GPUs. Process `rank` uses the device of that
number. `--pairs` copies from its device to each later one instead, which names the pair that can't.
Output is as that of `stress.py`. With `--size 1` one process tries the path alone.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import os
import sys
import time
from ast import literal_eval
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from ..verdict.readers import emit
from .stress import MIB, WORD, Array, Cupy, Torch, attempt

LARGE = 256 * MIB  # of an all-reduce that is timed; less on small devices
EXACT = 4 * MIB  # of one whose sums are compared
COPIED = 16 * MIB  # from one GPU to another
SECONDS = 0.4  # for the timed part
ROUNDS = 3


class TorchGroup(Torch):
    """All GPUs by torch.distributed; "cpu" stands for GPUs, to test the way itself."""

    def __init__(self, rank: int, size: int, device: str) -> None:
        super().__init__(device)
        self.rank, self.size = rank, size
        if device == "cuda":
            self.device = self.torch.device("cuda", rank)
            self.torch.cuda.set_device(rank)

    def reaches(self, other: int) -> bool:
        """Return whether the driver lets this GPU access another's memory directly."""
        on_gpu = self.device.type == "cuda"
        return not on_gpu or bool(self.torch.cuda.can_device_access_peer(self.rank, other))

    def join(self, meet: Path) -> bool:
        """Find the others, by a file."""
        from torch import distributed

        store = distributed.FileStore(str(meet / "store"), self.size)
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        distributed.init_process_group(
            backend,
            store=store,
            rank=self.rank,
            world_size=self.size,
            timeout=timedelta(seconds=600),  # whoever started this has a shorter one
        )
        return True

    def add_up(self, block: Array) -> None:
        """Replace a block by the sum of all processes' blocks."""
        from torch import distributed

        distributed.all_reduce(block)

    def on(self, other: int, block: Array) -> Array:
        """Return a copy of a block on another GPU, and wait for it."""
        there = block.to(self.torch.device("cuda", other) if block.is_cuda else "cpu", copy=True)
        self.sync()
        return there


class CupyGroup(Cupy):
    """As `TorchGroup`, by CuPy's own NCCL."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__()
        self.rank, self.size = rank, size
        self.xp.cuda.Device(rank).use()

    def sync(self) -> None:
        self.xp.cuda.Device(self.rank).synchronize()

    def reaches(self, other: int) -> bool:
        return bool(self.xp.cuda.runtime.deviceCanAccessPeer(self.rank, other))

    def join(self, meet: Path) -> bool:
        """Find the others, by a file that the first one writes."""
        from cupy.cuda import nccl

        file, new = meet / "id", meet / "id.new"
        if self.rank == 0:
            new.write_text(repr(nccl.get_unique_id()), "utf-8")
            new.replace(file)
        while not file.exists():
            time.sleep(0.01)
        name = literal_eval(file.read_text("utf-8"))  # numbers or bytes, by the version
        self.nccl = nccl
        self.group = nccl.NcclCommunicator(self.size, name, self.rank)
        return True

    def add_up(self, block: Array) -> None:
        at, stream = block.data.ptr, self.xp.cuda.get_current_stream().ptr
        self.group.allReduce(at, at, block.size, self.nccl.NCCL_INT32, self.nccl.NCCL_SUM, stream)

    def on(self, other: int, block: Array) -> Array:
        with self.xp.cuda.Device(other):
            there = self.xp.array(block)
            self.xp.cuda.Device(other).synchronize()
        return there


Group = Any  # TorchGroup or CupyGroup


def load(device: str) -> str:
    """Import the environment's library, and return its name; "" if it can't do this."""
    found = next((name for name in ("torch", "cupy") if importlib.util.find_spec(name)), "")
    if found == "torch":
        gc.disable()  # as in `stress.load`
        import torch.distributed

        gc.enable()
        able = torch.distributed.is_available()
        return found if able and (device == "cpu" or torch.distributed.is_nccl_available()) else ""
    if found == "cupy":
        from cupy.cuda import nccl

        return found if nccl.available else ""
    return ""


def reduced(group: Group) -> dict[str, Any]:
    """Add up whole numbers over all GPUs, and count the sums that are wrong.

    A process adds its rank to a pattern, so that the sums, in 32 bits, are known exactly.
    """
    pattern = group.pattern(EXACT // WORD)
    block = pattern + group.rank
    group.add_up(block)
    group.sync()
    sums = pattern * group.size + group.size * (group.size - 1) // 2
    return {"wrong": int((block != sums).sum()), "words": EXACT // WORD}


def speed(group: Group) -> dict[str, Any]:
    """Measure the all-reduce's bus bandwidth in bytes a second.

    That is 2 (n - 1) / n times the bytes of the block: what each link must carry, whatever the
    number of GPUs (nccl-tests, PERFORMANCE.md). The best of three rounds, each of as many blocks
    for every process.
    """
    free, _ = group.memory()
    size = min(LARGE, free // 16) // WORD * WORD
    block = group.block(size)

    def seconds(count: int) -> float:
        """Return the seconds for one of `count`."""
        group.sync()
        began = time.perf_counter()
        for _ in range(count):
            group.add_up(block)
        group.sync()
        return (time.perf_counter() - began) / count

    seconds(1)
    # All must do the same number: the slowest one's, which all learn by adding up.
    longest = group.block(WORD * group.size)
    longest[group.rank] = int(seconds(1) * 1e6)
    group.add_up(longest)
    count = max(1, int(SECONDS / ROUNDS * 1e6 / max(int(longest.max()), 1)))
    best = min(seconds(min(count, 1000)) for _ in range(ROUNDS))
    share = 2 * (group.size - 1) / group.size
    return {"bus": share * size / best, "bytes": size}


def copied(group: Group, other: int) -> dict[str, Any]:
    """Copy a pattern to another GPU and back, and count the words that are wrong."""
    pattern = group.pattern(COPIED // WORD)
    back = group.on(group.rank, group.on(other, pattern))
    return {"wrong": int((back != pattern).sum())}


def main() -> None:
    """Import, wait for the line, and let this GPU take its part."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True, help="of this process, from 0")
    parser.add_argument("--size", type=int, required=True, help="how many processes there are")
    parser.add_argument("--meet", type=Path, required=True, help="a new folder that all share")
    parser.add_argument("--device", default="cuda", help="cpu: the way alone")
    parser.add_argument("--pairs", action="store_true", help="copy from GPU to GPU instead")
    options = parser.parse_args()
    found = attempt("library", lambda: load(options.device))
    if found and sys.stdin.readline():
        take_part(found, options)
    emit("end")
    sys.stdout.flush()
    os._exit(0)  # leaving a group that hangs would hang too


def take_part(library: str, options: argparse.Namespace) -> None:
    """Do what was asked with the other GPUs; the first part that fails is the last."""
    groups: list[Group] = []
    others = [other for other in range(options.size) if other != options.rank]

    def start() -> list[int]:
        """Return the ranks whose GPU can be accessed."""
        one = (options.rank, options.size)
        groups.append(CupyGroup(*one) if library == "cupy" else TorchGroup(*one, options.device))
        return [other for other in others if groups[0].reaches(other)]

    reached = attempt("start", start)
    if reached is None:
        return
    group = groups[0]
    parts: dict[str, Callable[[], Any]] = {
        "join": lambda: group.join(options.meet),
        "all-reduce": lambda: reduced(group),
        "speed": lambda: speed(group),
    }
    if options.pairs:
        later = [other for other in reached if other > options.rank]
        parts = {f"copy {other}": partial(copied, group, other) for other in later}
    for name, work in parts.items():
        if attempt(name, work) is None:
            return
