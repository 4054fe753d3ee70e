"""Build an environment of conda packages."""

from __future__ import annotations

import os
from pathlib import Path

from .. import MAIN
from ..python.build import Build
from ..python.sources import EVERY_INDEX
from ..python.uv import Uv
from ..run_folder import lines_of
from ..step_report import StepError

_EVENTS = 3
_UNSATISFIABLE = 3


class CondaBuild(Build):
    def _make(self) -> None:
        """Make it of conda's packages, by rattler, which uv keeps in its cache."""
        env, file = self._env, self._values.conda
        self._refuse_missing([file])
        if os.path.exists(env.folder) and not env.is_ours:
            says = f"{env.folder} is there, and python.conda makes an environment of its own"
            raise StepError("build-failed", says, "choose another python.venv")
        code = self._retries.run(self._run_conda)
        if code == _UNSATISFIABLE:
            raise StepError("resolve-failed", f"no environment satisfies {file}")
        if code:
            raise StepError("", f"no environment could be built from {file}")
        Path(env.folder, ".boxstrap").touch()

    def _run_conda(self) -> int:
        """The box decides where these tools come from, as for boxstrap's own: no file of the
        repository, nor the profile's `env`, which the box's shells have from the second setup
        on."""
        values, home = self._values, self._home
        names = (name for name in values.env_names if name.startswith(("UV_", "PIP_")))
        uv = Uv(home, [*names])
        uv.read_indexes()
        words = ["run", "--quiet", "--isolated", "--no-project", "--python-preference", "system"]
        words += ["--python", ">=3.10", *(f"--with={tool}" for tool in values.conda_tools), "--"]
        words += ["python", "-I", "-B", MAIN, "conda.environment"]
        words += [f"{self._env.tree.path}/{values.conda}", self._env.folder, f"{home}/cache/conda"]
        words += [f"{self._setup}/of_pip", values.python_version]
        return uv.run(words, folder="/", keep=[_EVENTS])

    def _install(self) -> None:
        """Install the file's pip section, whose paths are relative to the file's folder. It removes
        nothing: uv would take the conda packages for ones that nobody requires."""
        self._refuse_missing(self._sources.files)
        words = lines_of(f"{self._setup}/of_pip")
        # As for a requirements file that names an index.
        has_index = any(word.startswith("--extra-index-url") for word in words)
        os.chdir(os.path.dirname(self._values.conda) or ".")
        self._add(words, *(EVERY_INDEX if has_index else ()))
        os.chdir(self._env.tree.path)
        super()._install()
