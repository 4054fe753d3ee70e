"""Builds the stand-in library and the agent's environment, and runs the real check with them."""

import compileall
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.box_programs import lay_programs

HERE = Path(__file__).resolve().parent
LIBRARY = "libnvidia-ml.so.1"


def compiler() -> str | None:
    """Return a C compiler, or None if the machine has none."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build_library(folder: Path) -> Path:
    """Build the stand-in into `folder`, which then goes into LD_LIBRARY_PATH."""
    cc = compiler()
    assert cc is not None
    library = folder / LIBRARY
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{LIBRARY}"]
    subprocess.run([cc, *flags, "-o", library, HERE / "nvml.c"], check=True)
    return library


def build_agent(folder: Path) -> Path:
    """Make an environment with this one's nvidia-ml-py and psutil alone; return its python."""
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name in ("pynvml", "psutil"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin)
        if source.name == "__init__.py":
            shutil.copytree(source.parent, site / name)
        else:
            shutil.copy(source, site)
    return folder / "bin" / "python"


_VERIFY = """
import json, sys
sys.path.insert(0, "box/current")
from onbox.verdict import expected_hardware, readers, verify
wanted = expected_hardware.parse_expected(open("order.json").read())
asked = verify.Inquiry(**json.loads(sys.argv[1]))
try:
    result = verify.ask(asked, wanted._replace(run_alive=bool(sys.argv[2])))
except readers.OwnError as error:
    sys.exit(str(error))
verify.keep(result, "result.json")
print(verify.summary(result), end="")
sys.exit(6 if result["verdict"] == "return" else 0)
"""
"""As the step `gpu` does it."""


@dataclass(frozen=True)
class VerifyRun:
    """The result of one run of the check."""

    code: int
    result: dict[str, Any]
    out: str
    err: str
    seconds: float

    def reasons(self) -> list[tuple[str, str, list[int]]]:
        """Return outcome, code and GPUs of each reason, in order of weight."""
        return [(r["outcome"], r["code"], r["gpus"]) for r in self.result["reasons"]]

    def outcomes(self, check: str) -> list[str]:
        """Return the outcomes of a check, one for each GPU."""
        return [c["outcome"] for c in self.result["checks"] if c["check"] == check]


@dataclass(frozen=True)
class NvmlRig:
    """A folder like a box's: `box/` next to an agent, with the stand-in as its driver."""

    folder: Path
    python: Path
    library: Path

    def run(
        self,
        scenario: str,
        *,
        order: object = None,
        stub: bool = True,
        run_alive: bool = False,
        **asked: object,
    ) -> VerifyRun:
        """Run the real check against a scenario; `stub=False` leaves the library out. `asked`: as
        `verify.Inquiry`."""
        (self.folder / "scenario").write_text(scenario)
        (self.folder / "order.json").write_text(json.dumps(order or {}))
        out = self.folder / "result.json"
        out.unlink(missing_ok=True)
        environment = {"PATH": os.environ["PATH"], "NVML_SCENARIO": str(self.folder / "scenario")}
        if stub:
            environment["LD_LIBRARY_PATH"] = str(self.library.parent)
        words = (self.python, "-I", "-B", "-c", _VERIFY, json.dumps(asked), str(run_alive or ""))
        started = time.monotonic()
        done = subprocess.run(
            [*map(str, words)],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - started
        result = json.loads(out.read_text()) if out.exists() else {}
        return VerifyRun(done.returncode, result, done.stdout, done.stderr, seconds)


def make_rig(folder: Path, *, compiled: bool = False) -> NvmlRig:
    """Make a rig in `folder`. A box has no bytecode, and compiling takes half of a run's time."""
    lay_programs(folder / "box/current")
    made = NvmlRig(folder, build_agent(folder / "agent"), build_library(folder))
    if compiled:
        compileall.compile_dir(folder, maxlevels=20, quiet=1)
    return made


def has_real_driver() -> bool:
    """Return whether this machine has an NVIDIA library, which `stub=False` would load."""
    probe = "import ctypes; ctypes.CDLL('libnvidia-ml.so.1')"
    return (
        subprocess.run([sys.executable, "-c", probe], capture_output=True, check=False).returncode
        == 0
    )
