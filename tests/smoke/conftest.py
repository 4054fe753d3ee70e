"""The box's own files, an agent with NVML's stand-in, and a python with the real torch."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from tests.nvml import stub
from tests.nvml.conftest import rig  # noqa: F401 - a fixture
from tests.programs import captured
from tests.smoke import torch_env


@pytest.fixture(scope="session")
def torch_python() -> Path:
    python = torch_env.torch_python()
    if python is None:
        pytest.skip("no CPU build of torch is at hand (BOXSTRAP_TEST_TORCH may name a python)")
    return python


@dataclass(frozen=True)
class Smoked:
    """One run of the smoke test."""

    folder: Path
    code: int
    verdict: dict[str, Any]
    out: str
    err: str

    def rows(self, check: str) -> list[tuple[int | None, str]]:
        """Return GPU and outcome of each row of a check."""
        return [(r["gpu"], r["outcome"]) for r in self.verdict["checks"] if r["check"] == check]

    def row(self, check: str, gpu: int | None) -> dict[str, Any]:
        """Return the row of a check for a GPU."""
        rows = self.verdict["checks"]
        return next(row for row in rows if (row["check"], row["gpu"]) == (check, gpu))

    def says(self, check: str, gpu: int | None) -> str:
        """Return what the check said of the GPU."""
        return str(self.row(check, gpu)["says"])

    def read(self, check: str, gpu: int | None) -> str:
        """Return what the check read of the GPU."""
        return str(self.row(check, gpu)["read"])

    def reasons(self) -> list[tuple[str, str, list[int]]]:
        """Return outcome, code and GPUs of each reason, in their order."""
        return [(r["outcome"], r["code"], r["gpus"]) for r in self.verdict["reasons"]]


_SMOKE = """
import json, os, runpy, subprocess, sys
sys.path.insert(0, "box/current")
from onbox.smoke import smoke
asked = smoke.SmokeTest(**json.loads(sys.argv[1]))

class ForkedWorker(subprocess.Popen):
    def __init__(self, command, **options):
        def become():
            os.closerange(3, 1024)  # with that by which subprocess learns that exec failed
            os.environ.update(options["env"])
            sys.argv = command[2:]
            runpy.run_path(sys.argv[0], run_name="__main__")
        is_worker = command[0] == asked.python
        super().__init__(command, preexec_fn=become if is_worker else None, **options)

if len(sys.argv) > 2:
    sys.path.append(sys.argv[2])
    import torch.distributed
    subprocess.Popen = ForkedWorker
said, code = smoke.tested(asked)
print(said, end="")
sys.exit(code)
"""
"""As the step `smoke` does it; but if it gets a folder with torch, workers are forked from it: the
import takes over a second of processor time, in each of up to sixteen."""


def smoke(
    box: stub.NvmlRig,
    scenario: str,
    python: Path,
    *,
    order: object = None,
    env: Mapping[str, str] = MappingProxyType({}),
    **asked: object,
) -> Smoked:
    """Run the NVML verdict and then the smoke test on top of it, as a box does. `asked`: as
    `SmokeTest`."""
    verified = box.run(scenario, order=order)
    assert verified.code in (0, 6), verified.err
    given = {
        "PATH": os.environ["PATH"],
        "NVML_SCENARIO": str(box.folder / "scenario"),
        "LD_LIBRARY_PATH": str(box.library.parent),
        "OMP_NUM_THREADS": "1",
        **env,
    }
    asked = {"python": str(python), "mode": "quick", **asked}
    asked |= {"order": "order.json", "out": "result.json"}
    site = python.parent.parent.glob("lib/*/site-packages") if python != box.python else ()
    command = (box.python, "-I", "-B", "-c", _SMOKE, json.dumps(asked), *site)
    done = captured(
        [str(word) for word in command], cwd=box.folder, env=given, timeout=500, check=False
    )
    verdict = json.loads((box.folder / "result.json").read_text())
    return Smoked(box.folder, done.returncode, verdict, done.stdout, done.stderr)
