"""Can this box be set up at all? Stage 0 has looked: `templates/lib/preflight.sh`."""

from __future__ import annotations

from ..step_report import StepError
from .step import BoxStep


class PreflightStep(BoxStep):
    def check(self) -> bool:
        return not self.setup.one("lacks")

    def apply(self) -> None:
        """Say what it lacks first."""
        code, _, sentence = self.setup.one("lacks").partition("\t")
        if code:
            raise StepError(code, sentence)
