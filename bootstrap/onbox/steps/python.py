"""The environment, built at its final path by uv (or pip or conda where asked), or an existing one
adopted.
"""

from __future__ import annotations

import re

from ..retries import Retries
from .step import BoxStep


class PythonStep(BoxStep):
    is_of_tree = True

    @property
    def stamp(self) -> str:
        return self.setup.environment.noted("ok")

    def inputs(self) -> str:
        return self.setup.environment.inputs

    def check(self) -> bool:
        return self.setup.environment.is_right()

    def apply(self) -> None:
        retries = Retries(f"{self.setup.folder}/logs/python.log")
        place = (self.setup.environment, self.setup.folder, retries)
        # Late: who only looks needs none of it.
        if self.values.conda:
            from ..conda.build import CondaBuild

            CondaBuild(*place).build()
        else:
            from ..python.build import Build

            Build(*place).build()

    def what_changed(self, noted: str) -> str:
        both = noted, self.inputs()
        for reason, rest in (("build", r"[0-9a-f]{64} $"), ("requirements", _FILES)):
            if len({re.sub(rest, "", text) for text in both}) == 1:
                return reason
        return "changed"


_FILES = r" (?:\$.)?[0-9a-f]{64}[ \\](?s:.*)"
