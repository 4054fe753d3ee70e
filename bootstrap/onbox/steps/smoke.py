"""Does each GPU compute correctly, and as fast as its model should? Tested with the environment's
own library."""

from __future__ import annotations

import os
import re
from functools import cached_property

from ..quoted import quoted
from ..run_folder import RunFolder, live_runs, names_in, write_whole
from ..step_report import StepError, log, report
from .step import BoxStep, expanded

_LIBRARIES = ("torch-*", "cupy*", "nvidia_cublas*")


class SmokeStep(BoxStep):
    def inputs(self) -> str:
        folder, tried = RunFolder(self.home), self._tried
        gpus = re.findall('"uuid": "[^"]*"', "\n".join(folder.lines("gpu.json") or []))
        patterns = (f"lib/python*/site-packages/{each}.dist-info" for each in _LIBRARIES)
        libraries = expanded(tried, *patterns) if tried else ""
        own = (self.values.smoke, tried, libraries, folder.first("gpu.driver"))
        return quoted("v1", *own, "\n".join(gpus))

    @cached_property
    def _tried(self) -> str:
        """The profile's environment; if only the box is checked, the one that was built last; ""
        if there is none."""
        if self.values.repo_commit:
            return self.setup.environment.folder
        steps = (RunFolder(f"{self.home}/steps/{name}") for name in names_in(f"{self.home}/steps"))
        built = [(noted.st_mtime_ns, each) for each in steps if (noted := each.stat("python.venv"))]
        made = max(built, key=lambda each: each[0])[1].first("python.venv") if built else ""
        return made if os.access(f"{made}/bin/python", os.X_OK) else ""

    def check(self) -> bool:
        """Without an environment there is nothing to test with."""
        said = RunFolder(self.home).stat("smoke.said")
        return bool(not self._tried or (said and said.st_size))

    def is_left_alone(self) -> bool:
        """While any run of ours computes on the box."""
        return any(run.is_running for run in live_runs(self.home))

    def apply(self) -> None:
        from ..smoke import smoke  # late: who only looks doesn't need it

        if not self._tried:
            return log("there is no environment yet: only NVML was asked")
        files = (f"{self.home}/gpu.order", f"{self.home}/gpu.json")
        asked = smoke.SmokeTest(f"{self._tried}/bin/python", self.values.smoke, *files)
        said, rc = smoke.tested(asked._replace(trains=not self.setup.one("only")))
        code = report(said)
        if rc:
            raise StepError(code or "command-failed", rc=rc)
        write_whole(f"{self.home}/smoke.said", said)
        return None
