"""The arithmetic that a GPU is tested with, through the library that the environment has.

An engine uses one device. Blocks are one-dimensional arrays of 32-bit words, matrices are
square. Nothing here judges: `stress.py` compares and times the results.
"""

from __future__ import annotations

from typing import Any

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
        """Convert the matrix to a kind of number."""
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
        """Return free and total memory in bytes."""
        free, total = self.xp.cuda.runtime.memGetInfo() if self.on_gpu else (1 << 28, 1 << 28)
        return free, total

    def sync(self) -> None:
        """Wait until all queued work is done."""
        if self.on_gpu:
            self.xp.cuda.Device(0).synchronize()

    def release(self) -> None:
        """Free the memory that the library keeps for reuse."""
        if self.on_gpu:
            self.xp.get_default_memory_pool().free_all_blocks()

    def pattern(self, words: int) -> Array:
        """Return a block in which each word contains its own position, mixed."""
        return self.xp.arange(words, dtype=self.xp.int32) * self.xp.int32(MIX)

    def salted(self, pattern: Array, salt: int) -> Array:
        """Return a new block: the pattern, with the bits of `salt` flipped in each word."""
        return pattern ^ self.xp.int32(salt)

    def wrong(self, block: Array, pattern: Array, salt: int) -> int:
        """Count the words of a block that are not what `salted` wrote."""
        return int(((block ^ self.xp.int32(salt)) != pattern).sum())

    def signs(self, n: int, seed: int) -> Array:
        """Return a matrix of -1, 0 and 1."""
        maker = self.xp.random.RandomState(seed)
        return maker.randint(-1, 2, (n, n)).astype(self.xp.float32)

    def noise(self, n: int, seed: int) -> Array:
        """Return a matrix of random fractions of either sign."""
        return self.xp.random.RandomState(seed).standard_normal((n, n)).astype(self.xp.float32)

    def of_kind(self, matrix: Array, kind: str) -> Array:
        """Convert the matrix to a kind of number."""
        return matrix.astype(self.xp.float16 if kind == "fp16" else self.xp.float32)

    def product(self, a: Array, b: Array, kind: str) -> Array:  # noqa: ARG002 - as in Torch
        """Return the product of two matrices of one kind."""
        return a @ b

    def same(self, one: Array, other: Array) -> bool:
        """Return whether two matrices agree in every bit."""
        words = {2: self.xp.int16, 4: self.xp.int32}[one.itemsize]
        return bool((one.view(words) == other.view(words)).all())

    def rows_wrong(self, a: Array, b: Array, c: Array, seed: int) -> int:
        """As in `Torch`, but on the device, since NumPy's functions may be missing next to CuPy."""
        x = self.xp.random.RandomState(seed).randint(1, 1 << 16, (b.shape[1], 1)).astype(float)
        a, b, c = (matrix.astype(float) for matrix in (a, b, c))
        return int((c @ x != a @ (b @ x)).sum())

    def block(self, size: int) -> Array:
        """Return a block of `size` bytes on the device."""
        return self.xp.zeros(size // WORD, dtype=self.xp.int32)

    def pinned(self, size: int) -> Array:
        """Return a block of `size` bytes on the host, which the device can access directly."""
        if not self.on_gpu:
            return self.block(size)
        import cupyx

        return cupyx.zeros_pinned(size // WORD, dtype=self.xp.int32)

    def copy(self, to: Array, source: Array) -> None:
        """Start copying one block over another; one of them may be on the host."""
        if not self.on_gpu or (hasattr(to, "device") and hasattr(source, "device")):
            to[...] = source
        elif hasattr(to, "data") and hasattr(to, "device"):
            to.set(source)
        else:
            source.get(out=to)
