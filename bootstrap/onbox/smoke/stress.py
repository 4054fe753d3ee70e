"""Put one GPU under load and report the results; run in the environment that training will use.

`onbox smoke.stress --mode quick` uses the first device that CUDA shows. It writes one
JSON list a line, as readers do: `[part]` before a part, `[part, value]` after it, `["end"]` last.
A part that raises has the value `{"error": first line of the message}`. Sizes are in bytes, times
in seconds, speeds in bytes or operations a second.

The arithmetic goes through the library that the environment has: an engine uses one device. Blocks
are one-dimensional arrays of 32-bit words, matrices are square.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import importlib.util
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..verdict.readers import emit

Array = Any  # of torch, CuPy or NumPy
WORD = 4  # bytes
MIX = -1640531527  # 2**32 / golden ratio, as a signed word: neighbours differ in many bits
TENSOR_CORES = (8, 0)  # the lowest compute capability with TF32 and BF16


class Torch:
    """The engine for PyTorch. `device` is "cuda", or "cpu" to test the arithmetic itself."""

    def __init__(self, device: str = "cuda") -> None:
        import torch

        self.torch = torch
        self.device = torch.device(device)
        if device == "cuda":
            torch.cuda.init()  # its error says why CUDA can't start
            torch.cuda.set_device(0)

    def architectures(self) -> list[str]:
        """Return what its kernels are compiled for, such as sm_80 or compute_90."""
        return list(self.torch.cuda.get_arch_list())

    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of numbers that this device multiplies fast."""
        if self.device.type != "cuda":
            return ("fp32", "bf16")
        modern = self.torch.cuda.get_device_capability(0) >= TENSOR_CORES
        return ("fp32", "tf32", "bf16") if modern else ("fp32", "fp16")

    def memory(self) -> tuple[int, int]:
        """Return free and total memory in bytes."""
        if self.device.type != "cuda":
            return 1 << 28, 1 << 28
        free, total = self.torch.cuda.mem_get_info()
        return free, total

    def sync(self) -> None:
        """Wait until all queued work is done."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def release(self) -> None:
        """Free the memory that the library keeps for reuse."""
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()

    def pattern(self, words: int) -> Array:
        """Return a block in which each word contains its own position, mixed."""
        places = self.torch.arange(words, dtype=self.torch.int32, device=self.device)
        return places.mul_(MIX)

    def salted(self, pattern: Array, salt: int) -> Array:
        """Return a new block: the pattern, with the bits of `salt` flipped in each word."""
        return self.torch.bitwise_xor(pattern, salt)

    def wrong(self, block: Array, pattern: Array, salt: int) -> int:
        """Count the words of a block that are not what `salted` wrote."""
        return int((self.torch.bitwise_xor(block, salt) != pattern).sum().item())

    def signs(self, n: int, seed: int) -> Array:
        """Return a matrix of -1, 0 and 1: they and their sums are exact in every kind of number."""
        maker = self.torch.Generator().manual_seed(seed)
        whole = self.torch.randint(-1, 2, (n, n), generator=maker, dtype=self.torch.int8)
        return whole.to(self.device, self.torch.float32)

    def noise(self, n: int, seed: int) -> Array:
        """Return a matrix of random fractions of either sign."""
        maker = self.torch.Generator(device=self.device).manual_seed(seed)
        return self.torch.randn((n, n), generator=maker, device=self.device)

    def of_kind(self, matrix: Array, kind: str) -> Array:
        types = {"bf16": self.torch.bfloat16, "fp16": self.torch.float16}
        return matrix.to(types.get(kind, self.torch.float32))

    def product(self, a: Array, b: Array, kind: str) -> Array:
        """Return the product of two matrices of one kind."""
        # Not set_float32_matmul_precision, which would choose bf16x3 on some devices.
        self.torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
        return self.torch.matmul(a, b)

    def same(self, one: Array, other: Array) -> bool:
        """Return whether two matrices agree in every bit."""
        words = {2: self.torch.int16, 4: self.torch.int32}[one.element_size()]
        return bool(self.torch.equal(one.view(words), other.view(words)))

    def rows_wrong(self, a: Array, b: Array, c: Array, seed: int) -> int:
        """Count the rows of `c` that can't be of a x b, by Freivalds' check in 64 bits on the CPU.

        c x = a (b x) for a vector x of whole numbers; exact, since all sums are small.
        """
        maker = self.torch.Generator().manual_seed(seed)
        x = self.torch.randint(1, 1 << 16, (b.shape[1], 1), generator=maker).double()
        a, b, c = (matrix.cpu().double() for matrix in (a, b, c))
        return int((c @ x != a @ (b @ x)).sum().item())

    def block(self, size: int) -> Array:
        """Return a block of `size` bytes on the device."""
        return self.torch.zeros(size // WORD, dtype=self.torch.int32, device=self.device)

    def pinned(self, size: int) -> Array:
        """Return a block of `size` bytes on the host, which the device can access directly."""
        pin = self.device.type == "cuda"
        return self.torch.zeros(size // WORD, dtype=self.torch.int32, pin_memory=pin)

    def copy(self, to: Array, source: Array) -> None:
        """Start copying one block over another."""
        to.copy_(source, non_blocking=True)


class Cupy:
    """The engine for CuPy. `xp` is cupy itself, or numpy to test the arithmetic itself."""

    def __init__(self, xp: Any = None) -> None:  # noqa: ANN401 - a module
        if xp is None:
            import cupy as xp  # type: ignore[no-redef]
        self.xp = xp
        self.on_gpu = xp.__name__ == "cupy"
        if self.on_gpu:
            xp.cuda.Device(0).use()

    def architectures(self) -> list[str]:
        """Return none: CuPy compiles its kernels on the box."""
        return []

    def kinds(self) -> tuple[str, ...]:
        """As in `Torch`, but without TF32, which CuPy enables only by an environment variable."""
        return ("fp32", "fp16") if self.on_gpu else ("fp32",)

    def memory(self) -> tuple[int, int]:
        free, total = self.xp.cuda.runtime.memGetInfo() if self.on_gpu else (1 << 28, 1 << 28)
        return free, total

    def sync(self) -> None:
        if self.on_gpu:
            self.xp.cuda.Device(0).synchronize()

    def release(self) -> None:
        if self.on_gpu:
            self.xp.get_default_memory_pool().free_all_blocks()

    def pattern(self, words: int) -> Array:
        return self.xp.arange(words, dtype=self.xp.int32) * self.xp.int32(MIX)

    def salted(self, pattern: Array, salt: int) -> Array:
        return pattern ^ self.xp.int32(salt)

    def wrong(self, block: Array, pattern: Array, salt: int) -> int:
        return int(((block ^ self.xp.int32(salt)) != pattern).sum())

    def signs(self, n: int, seed: int) -> Array:
        maker = self.xp.random.RandomState(seed)
        return maker.randint(-1, 2, (n, n)).astype(self.xp.float32)

    def noise(self, n: int, seed: int) -> Array:
        return self.xp.random.RandomState(seed).standard_normal((n, n)).astype(self.xp.float32)

    def of_kind(self, matrix: Array, kind: str) -> Array:
        return matrix.astype(self.xp.float16 if kind == "fp16" else self.xp.float32)

    def product(self, a: Array, b: Array, kind: str) -> Array:  # noqa: ARG002 - as in Torch
        return a @ b

    def same(self, one: Array, other: Array) -> bool:
        words = {2: self.xp.int16, 4: self.xp.int32}[one.itemsize]
        return bool((one.view(words) == other.view(words)).all())

    def rows_wrong(self, a: Array, b: Array, c: Array, seed: int) -> int:
        """As in `Torch`, but on the device, since NumPy's functions may be missing next to CuPy."""
        x = self.xp.random.RandomState(seed).randint(1, 1 << 16, (b.shape[1], 1)).astype(float)
        a, b, c = (matrix.astype(float) for matrix in (a, b, c))
        return int((c @ x != a @ (b @ x)).sum())

    def block(self, size: int) -> Array:
        return self.xp.zeros(size // WORD, dtype=self.xp.int32)

    def pinned(self, size: int) -> Array:
        if not self.on_gpu:
            return self.block(size)
        import cupyx

        return cupyx.zeros_pinned(size // WORD, dtype=self.xp.int32)

    def copy(self, to: Array, source: Array) -> None:
        """Start copying one block over another; one of them may be on the host."""
        # Not by an attribute: arrays of NumPy 2 have a `device` too.
        to_gpu, from_gpu = (isinstance(block, self.xp.ndarray) for block in (to, source))
        if to_gpu and from_gpu:
            to[...] = source
        elif to_gpu:
            to.set(source)
        else:
            source.get(out=to)


Engine = Any  # Torch or Cupy, which have the same methods
MIB = 1 << 20


class Mode(NamedTuple):
    share: float  # of the memory, for the pattern
    most: int  # bytes of it at most
    rounds: int  # how often the pattern is written and read
    seconds: float  # for each timed kind
    repeats: int  # of the product that must come out the same


MODES = {
    "quick": Mode(0.25, 8 << 30, 1, 0.3, 8),
    "full": Mode(0.85, 1 << 62, 8, 5.0, 200),
}
SPARE = 512 * MIB  # left free for the driver and the library itself
BLOCK = 256 * MIB  # of the memory pattern; smaller on small devices
LARGEST, SMALLEST = 8192, 512  # rows of a matrix that is timed
EXACT = 1024  # rows of the matrix that is compared: sums of that many -1, 0 and 1 stay below 256
LONG_ENOUGH = 0.004  # seconds for one product, so that launching it doesn't count
SALTS = (0, -1)  # the pattern, and its complement


def memory(engine: Engine, mode: Mode) -> dict[str, Any]:
    """Write a pattern over the memory, block by block, and read all of it back."""
    free, total = engine.memory()
    wanted = min(int(total * mode.share), mode.most)
    size = min(BLOCK, wanted // 64) // WORD * WORD
    # Three more blocks: the pattern itself, and the temporaries of a comparison.
    room = min(wanted, free - min(SPARE, free // 16) - 3 * size)
    count = max(1, room // size)
    pattern = engine.pattern(size // WORD)
    wrong = 0
    for turn in range(mode.rounds):
        for salt in SALTS:
            # Each block has its own salt, so that two blocks at one address are noticed.
            salts = [salt ^ (turn << 20) ^ place for place in range(count)]
            blocks = [engine.salted(pattern, each) for each in salts]
            engine.sync()
            wrong += sum(engine.wrong(b, pattern, s) for b, s in zip(blocks, salts))  # noqa: B905
            del blocks
    engine.release()
    return {"wrong": wrong, "bytes": count * size, "total": total}


def product(engine: Engine, _mode: Mode) -> dict[str, Any]:
    """Multiply whole numbers in each kind, and compare with the exact product."""
    a, b = engine.signs(EXACT, 1), engine.signs(EXACT, 2)
    wrong = {}
    for kind in engine.kinds():
        c = engine.product(engine.of_kind(a, kind), engine.of_kind(b, kind), kind)
        wrong[kind] = engine.rows_wrong(a, b, c, 3)
    return {"rows": EXACT, "wrong": wrong}


def stable(engine: Engine, mode: Mode) -> dict[str, Any]:
    """Repeat the same product: every bit must be the same each time.

    NVIDIA promises this for cuBLAS on one device and one stream (cuBLAS, Results reproducibility).
    """
    different = {}
    n = min(2048, fitting(engine, "fp32"))
    a, b = engine.noise(n, 4), engine.noise(n, 5)
    for kind in engine.kinds():
        x, y = engine.of_kind(a, kind), engine.of_kind(b, kind)
        first = engine.product(x, y, kind)
        again = (engine.product(x, y, kind) for _ in range(mode.repeats))
        different[kind] = sum(not engine.same(first, each) for each in again)
    return {"repeats": mode.repeats, "different": different}


def speed(engine: Engine, mode: Mode) -> dict[str, Any]:
    """Measure operations a second of a large product, in each kind."""
    found = {}
    for kind in engine.kinds():
        n = fitting(engine, kind)
        found[kind] = 2 * n**3 / each_product(engine, kind, n, mode.seconds)
        engine.release()
    return found


def each_product(engine: Engine, kind: str, n: int, seconds: float) -> float:
    """Measure the seconds for one product of size `n`."""
    a, b = (engine.of_kind(engine.noise(n, seed), kind) for seed in (6, 7))
    return timed(engine, lambda: engine.product(a, b, kind), seconds)


def fitting(engine: Engine, kind: str) -> int:
    """Return the size of a product that takes long enough to be timed on this device."""
    n = SMALLEST
    while n < LARGEST and each_product(engine, kind, n, 0) < LONG_ENOUGH:
        n *= 2
    return n


def bandwidth(engine: Engine, mode: Mode) -> dict[str, Any]:
    """Measure bytes a second in device memory, and over the bus to and from pinned memory."""
    free, _ = engine.memory()
    size = min(BLOCK, free // 16) // WORD * WORD
    here, there, host = engine.block(size), engine.block(size), engine.pinned(size)
    pairs: list[tuple[str, int, Array, Array]] = [
        ("device", 2 * size, there, here),  # read and written
        ("to", size, here, host),
        ("from", size, host, here),
    ]
    found = {}
    for name, moved, to, source in pairs:
        each = timed(engine, lambda: engine.copy(to, source), mode.seconds / 5)  # noqa: B023
        found[name] = moved / each
    return found


def timed(engine: Engine, action: Callable[[], object], seconds: float) -> float:
    """Return the seconds of one action: the best of three rounds that take `seconds` in all."""
    action()
    engine.sync()
    began = time.perf_counter()
    action()
    engine.sync()
    once = time.perf_counter() - began
    best, count = once, max(1, int(seconds / 3 / max(once, 1e-6)))
    for _ in range(3 if seconds else 0):
        began = time.perf_counter()
        for _ in range(count):
            action()
        engine.sync()
        best = min(best, (time.perf_counter() - began) / count)
    return best


PARTS: dict[str, Callable[[Engine, Mode], dict[str, Any]]] = {
    "memory": memory,
    "product": product,
    "speed": speed,
    "stable": stable,  # after speed, while the card is warm
    "bandwidth": bandwidth,
}
ALONE = ("bandwidth",)  # GPUs share a bus, so they take turns


@contextlib.contextmanager
def turn(name: str, lock: str) -> Iterator[None]:
    """Wait for the other GPUs if a part must run alone."""
    if name not in ALONE or not lock:
        yield
        return
    with Path(lock).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def attempt(name: str, work: Callable[[], Any]) -> Any:  # noqa: ANN401
    """Announce a part, do it, report and return its value; None if it raised."""
    emit(name)
    try:
        value = work()
    except Exception as error:  # any error of a library is a result here
        last = (str(error).strip() or type(error).__name__).splitlines()[0]
        emit(name, {"error": last[:300]})
        return None
    emit(name, value)
    return value


def load(wanted: str) -> dict[str, Any]:
    """Return the environment's library and its CUDA; {} if it has no library to test with."""
    found = next((name for name in ("torch", "cupy") if importlib.util.find_spec(name)), "")
    if found == "torch":
        gc.disable()  # torch's objects stay; scanning them takes a seventh of the import
        import torch

        gc.enable()
        return {"name": f"torch {torch.__version__}", "cuda": torch.version.cuda}
    return {"name": "cupy", "cuda": None} if found and wanted == "cuda" else {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=MODES, default="quick")
    parser.add_argument("--device", default="cuda", help="cpu: the arithmetic alone")
    parser.add_argument("--lock", default="", help="a file that all GPUs of the box share")
    options = parser.parse_args()
    # cuBLAS is bit-stable with a workspace of its own (cuBLAS, Results reproducibility).
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    found = attempt("library", lambda: load(options.device))
    engines: list[Engine] = []

    def start() -> dict[str, Any]:
        engines.append(Torch(options.device) if found["name"] != "cupy" else Cupy())
        return {"built for": engines[0].architectures()}

    if found and attempt("start", start) is not None:
        for name, work in PARTS.items():
            with turn(name, options.lock):
                attempt(name, lambda: work(engines[0], MODES[options.mode]))  # noqa: B023
    emit("end")
    sys.stdout.flush()
    os._exit(0)  # releasing a sick device can hang too
