"""Events of what uv prints while it installs: how many packages are resolved, how many bytes came,
as the network counts them, twice a second, and whether something is compiled.
"""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Iterator

from ..run_folder import lines_of
from ..step_report import tell

PATIENCE_S = 20.0
"""Most packages without a wheel are built in a moment; one that isn't is compiled, for minutes."""
LONG_BUILDS = """
    apex auto-gptq bitsandbytes causal-conv1d deepspeed detectron2 flash-attn flash-attn-3
    flashinfer-python gsplat llama-cpp-python mamba-ssm mmcv natten nvdiffrast pytorch3d
    sageattention spconv tinycudann torch-cluster torch-scatter torch-sparse transformer-engine vllm
    xformers
""".split()  # noqa: SIM905 - a list for people
"""These compile for CUDA, which takes minutes: warned of before they start."""
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class UvProgress:
    """How far uv is."""

    def __init__(self) -> None:
        self.packages = self.bytes = self.came = 0
        self._build_began: float | None = None
        self._before = bytes_received()

    def take(self, line: str) -> Iterator[str]:
        """Take a line of uv's, and yield the events that follow from it."""
        if found := re.search(r"Resolved (\d+)", line):
            self.packages = int(found[1])
            yield f"progress done=0 total={self.packages} unit=packages"
        elif found := re.search(r"Downloading .*\(([0-9.]+)([KMG]iB)?", line):
            self.bytes += int(float(found[1]) * _UNITS.get(found[2], 1))
        elif found := re.search(r"Building ([^ =@]*)", line):
            if found[1] in LONG_BUILDS:
                yield "warn code=compiling"
            else:
                self._build_began = time.monotonic()
        elif " Built " in line:
            self._build_began = None
        elif re.search("[Ii]nstalled |Checked ", line):  # "Uninstalled", if that is all
            yield f"progress done={self.packages} total={self.packages} unit=packages"

    def look(self) -> Iterator[str]:
        """Yield the events of half a second."""
        if self._build_began is not None and time.monotonic() - self._build_began >= PATIENCE_S:
            self._build_began = None
            yield "warn code=compiling"
        now = bytes_received()
        # A network card that disappeared takes its byte count with it.
        self.came += max(0, now - self._before)
        self._before = now
        yield f"progress done={self.came} total={self.bytes or ''} unit=bytes"


def bytes_received() -> int:
    """Return the sum over all network cards but the loopback."""
    rows = [line.replace(":", " ").split() for line in lines_of("/proc/net/dev")[2:]]
    return sum(int(row[1]) for row in rows if row[0] != "lo")


def follow(uv: int) -> None:
    """Read what uv prints into this pipe, until it is closed, into the log, and tell its events."""
    progress, rest, next_look = UvProgress(), b"", time.monotonic() + 0.5
    while True:
        events: list[str] = []
        if select.select([uv], [], [], max(0.0, next_look - time.monotonic()))[0]:
            piece = os.read(uv, 65536)
            os.write(2, piece)
            if not piece:
                return
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                events += progress.take(line.decode("utf-8", "replace"))
        if time.monotonic() >= next_look:
            next_look = time.monotonic() + 0.5
            events += progress.look()
        for event in events:
            tell(event)
