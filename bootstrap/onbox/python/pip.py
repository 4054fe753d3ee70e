"""Install an environment's packages by its own pip."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ..short_program import run
from ..step_report import StepError
from .environment import BoxEnvironment
from .image_packages import LEFT_ALONE, plain
from .uv import call

_NOWHERE_ELSE = {"PIP_USER": "0", "PIP_TARGET": "", "PIP_PREFIX": "", "PIP_ROOT": ""}
"""The box's pip may be set to install elsewhere."""


class PipInstaller:
    def __init__(
        self, environment: BoxEnvironment, folder: str, must: Callable[[Callable[[], int]], None]
    ) -> None:
        self._env, self._folder, self._must = environment, folder, must

    def install(self, words: Sequence[str], *, doubted: bool, exact: bool) -> None:
        values = self._env.values
        if self._env.sources.kind == "lock":
            says = "python.installer: pip cannot install a uv.lock"
            raise StepError("build-failed", says, "take uv, or name requirements")
        has_groups = "--group" in values.added_arguments[:1]
        if has_groups and b"--group " not in run(self._pip("install", "--help"), os.environ).output:
            says = f"the pip of {self._env.folder} is too old for python.groups"
            raise StepError("build-failed", says, "take uv, or renew pip there")
        for index in values.python_index:
            words = ["--extra-index-url", index, *words]
        force = ["--force-reinstall"] if doubted else []
        self._must(lambda: self._call("install", *words, *force))
        if exact:
            self._uninstall_others(words)

    def _uninstall_others(self, words: Sequence[str]) -> None:
        """pip removes nothing on its own. Remove what it would not install again, except what every
        environment starts with."""
        report = f"{self._folder}/would.json"
        look = ("install", "--dry-run", "--ignore-installed", "--quiet", "--report", report)
        self._must(lambda: self._call(*look, *words))
        would = json.loads(Path(report).read_text("utf-8"))["install"]
        kept = {plain(one["metadata"]["name"]) for one in would} | LEFT_ALONE
        notes = (note for site in self._env.packages for note in Path(site).glob("*-*.*-info"))
        if others := sorted({plain(note.name.partition("-")[0]) for note in notes} - kept):
            self._must(lambda: self._call("uninstall", "-y", *others))

    def _pip(self, *words: str) -> list[str]:
        own = ("--disable-pip-version-check", "--no-input")
        return [self._env.python, "-I", "-m", "pip", words[0], *own, *words[1:]]

    def _call(self, *words: str) -> int:
        folder = self._env.sources.stands_in or "."
        return call(self._pip(*words), {**os.environ, **_NOWHERE_ELSE}, folder)
