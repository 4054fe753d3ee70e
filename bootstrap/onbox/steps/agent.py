"""uv, and a small environment of boxstrap's own that no user's package can break."""

from __future__ import annotations

import os

from .. import SHELL_PROGRAMS
from ..processes import begin_apart
from ..quoted import quoted
from ..retries import Retries
from ..run_folder import lines_of, write_whole
from ..work.repair import remove_folder
from .step import BoxStep

PACKAGES = ("nvidia-ml-py>=12.560,<14", "psutil>=5.9,<8")


class AgentStep(BoxStep):
    @property
    def _agent(self) -> str:
        return f"{self.home}/agent"

    def inputs(self) -> str:
        return quoted("v1", *PACKAGES)

    def check(self) -> bool:
        uv, folders = lines_of(f"{self.home}/uv")[:1], lines_of(f"{self._agent}/complete")
        can_run = bool(folders) and self._can_run(*(uv or [""]))
        return can_run and all(os.path.exists(f"{self._agent}/{each}") for each in folders)

    def _can_run(self, *others: str) -> bool:
        return all(os.access(path, os.X_OK) for path in (f"{self._agent}/bin/python", *others))

    def apply(self) -> None:
        """Small, so it is rebuilt each time: uv would accept a copy that a kill left
        half-written."""
        from glob import glob  # late: who only looks needs none of these

        from ..python.bring_uv import UvWheel, find_uv
        from ..python.uv import Uv

        agent, step_log = self._agent, f"{self.setup.folder}/logs/agent.log"
        # The one that stage 0 made, where nothing else is, is what runs this.
        is_bare = self._can_run() and not glob(f"{agent}/lib/*/site-packages/*/")
        if not is_bare:
            remove_folder(agent)
        self._follow_the_box_alone()
        wheel = UvWheel(self.home, self.setup.folder, step_log)
        found = find_uv(self.home) or wheel.bring(self.values.index)
        write_whole(f"{self.home}/uv", "".join(f"{each}\n" for each in found), 0o600)
        uv, retries = Uv(self.home), Retries(step_log)
        uv.read_indexes()
        made = ["venv", "--quiet", "--python-preference", "system", "--python", ">=3.8"]
        if not is_bare:
            retries.must(lambda: uv.run([*made, "--no-project", agent]))
        python = f"{agent}/bin/python"
        (lib,) = os.listdir(f"{agent}/lib")
        # Into its folder, with the interpreter that it was made from: uv has already queried that
        # one.
        into = ["--python", os.readlink(python), "--target", f"{agent}/lib/{lib}/site-packages"]
        retries.must(lambda: uv.run(["pip", "install", "--quiet", *into, *PACKAGES]))
        write_whole(f"{agent}/complete", "".join(f"{each}\n" for each in self._folders(lib)), 0o600)
        # Else whoever asks for runs compiles it each time. Nothing waits for it.
        compiles = ("-I", "-S", "-m", "compileall", "-q", f"{SHELL_PROGRAMS}/onbox")
        begin_apart("nice", python, *compiles)

    def _folders(self, lib: str) -> list[str]:
        found = []
        for folder, names, _ in os.walk(f"{self._agent}/lib/{lib}/site-packages"):
            names[:] = [name for name in names if name != "__pycache__"]
            found.append(os.path.relpath(folder, self._agent))
        return found

    def _follow_the_box_alone(self) -> None:
        """The box decides where boxstrap's own tools come from, no repository: neither its files (a
        door may be opened in its folder) nor its profile's `env`, which the box's shells have from
        the second setup on."""
        os.chdir("/")
        for name in self.values.env_names:
            if name.startswith(("UV_", "PIP_")):
                os.environ.pop(name, None)
