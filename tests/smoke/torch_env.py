"""Finds an environment with a CPU build of torch, or makes one once and keeps it.

In this order: the python that BOXSTRAP_TEST_TORCH names; this one, if it has torch; one made from
a CPU build that pip is configured to find on this machine. No CUDA build (gigabytes) is fetched.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from tests.boxes import host_sources, places

NAME = "BOXSTRAP_TEST_TORCH"


def torch_python() -> Path | None:
    """Return a python that can import torch, or None if this machine has none."""
    if os.environ.get(NAME):
        return Path(os.environ[NAME])
    if importlib.util.find_spec("torch"):
        return Path(sys.executable)
    wheel = cpu_wheel()
    return made(wheel) if wheel else None


def cpu_wheel() -> Path | None:
    """Return a CPU build for this Python from a folder that pip is configured to search."""
    tag = f"-cp{sys.version_info.major}{sys.version_info.minor}-"
    folders = host_sources.pip_index().local_wheels()
    found = (wheel for folder in folders for wheel in folder.glob("torch-*+cpu-*.whl"))
    return next((wheel for wheel in found if tag in wheel.name), None)


def made(wheel: Path) -> Path:
    """Return the python of a wheel's environment, which the first caller makes for all."""
    folder = places.cache() / "torch" / f"{wheel.name.partition('-cp')[0]}-numpy"
    python = folder / "bin" / "python"
    with places.locked(folder.parent / "torch.lock"):
        if not (folder / "compiled").exists():
            uv = [str(Path(sys.executable).parent / "uv"), "--quiet"]
            env = {**os.environ, "UV_SYSTEM_CERTS": "1", "UV_NO_CONFIG": "1"}
            make = [*uv, "venv", "--clear", "--python", sys.executable, str(folder)]
            fill = [*uv, "pip", "install", "--python", str(python), str(wheel), "numpy"]
            # Boxes' programs write no bytecode; without it each import takes three times as long.
            compiled = [str(python), "-c", "import torch, numpy"]
            for command in (make, fill, compiled):
                subprocess.run(command, env=env, check=True, timeout=300)
            (folder / "compiled").touch()
    return python
