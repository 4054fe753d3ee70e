"""Is the GPU that was ordered really there? Asked through NVML, before anything is built."""

from __future__ import annotations

import os
import site

from ..processes import identity
from ..quoted import quoted
from ..run_folder import RunFolder, lines_of, live_runs, write_whole
from ..step_report import StepError, report
from .step import BoxStep, SetupFacts, expanded


class GpuStep(BoxStep):
    """Its verdict holds for as long as the box is up and its devices are there."""

    def inputs(self) -> str:
        return quoted("v1", self.values.gpu, identity(1))

    def what_changed(self, noted: str) -> str:
        return "restarted" if noted.startswith(quoted("v1", self.values.gpu)) else "changed"

    def check(self) -> bool:
        verdict = RunFolder(self.home).stat("gpu.json")
        is_same = lines_of(f"{self.home}/gpu.devices") == [_devices()]
        return bool(verdict and verdict.st_size and is_same) and not is_returned(self.setup)

    def apply(self) -> None:
        from glob import escape, glob  # late: who only looks needs none of it

        from ..python.uv_release import wheel_here
        from ..verdict import verify
        from ..verdict.expected_hardware import parse_expected
        from ..verdict.readers import OwnError

        # What asks NVML is in the environment of this program's own.
        for folder in glob(f"{escape(self.home)}/agent/lib/python*/site-packages"):
            site.addsitedir(folder)
        said, ahead = f"{self.home}/gpu.said", os.environ.get("CLOCK_AHEAD")
        write_whole(f"{self.home}/gpu.order", f"{self.values.gpu}\n", 0o600)
        write_whole(f"{self.home}/gpu.devices", _devices(), 0o600)
        asked = verify.Inquiry(
            workdir=self.home,
            index_url=self.values.index,
            wheel=wheel_here()[0],
            git=self.values.clone_url,
            ahead=float(ahead) if ahead else None,
        )
        is_busy = any(run.is_running for run in live_runs(self.home))
        try:
            wanted = parse_expected(self.values.gpu)._replace(run_alive=is_busy)
            result = verify.ask(asked, wanted)
        except (OwnError, ValueError, TypeError) as error:
            write_whole(said, "")
            raise StepError("command-failed", str(error)) from None
        verify.keep(result, f"{self.home}/gpu.json")
        write_whole(said, verify.summary(result))
        if code := report(verify.summary(result)):
            raise StepError(code, rc=6)


def is_returned(setup: SetupFacts) -> bool:
    return "verdict return" in lines_of(f"{setup.home}/gpu.said")


def _devices() -> str:
    return expanded("/dev", "nvidia*", "dxg")
