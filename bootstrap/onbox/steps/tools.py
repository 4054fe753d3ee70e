"""git, tmux, a python, and the profile's packages, through the box's own package manager."""

from __future__ import annotations

import os

from ..packages import Packages, find_manager
from ..quoted import quoted
from ..retries import Retries
from ..run_folder import lines_of, remove_file, write_whole
from ..short_program import which
from ..step_report import caution
from .step import BoxStep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_TOOLS = {"git": "no-git", "tmux": "no-tmux", "python3": "no-python"}
"""Each is its package's name too; the code warns that it is missing."""


class ToolsStep(BoxStep):
    def inputs(self) -> str:
        return quoted("v1", *(self.values.packages or [""]))

    def check(self) -> bool:
        """If nothing can be installed, what is missing was reported and stays missing; the
        profile's packages are asked for again."""
        # Noted by an earlier setup.
        if os.path.exists(self._lacking) and lines_of(self._lacking) != [self._setup_id]:
            return False
        return not _missing() or not self._manager()

    @property
    def _lacking(self) -> str:
        return f"{self.home}/steps/tools.lacking"

    @property
    def _setup_id(self) -> str:
        return os.path.basename(self.setup.folder)

    def _manager(self) -> str:
        return "" if self.values.is_local else find_manager()

    def apply(self) -> None:
        missing, wanted, manager = _missing(), self.values.packages, self._manager()
        if not manager:
            for name in missing:
                why = f"{name} is not here, and it cannot be installed without root or sudo"
                caution(_TOOLS[name], why)
            if wanted:
                asked = f"packages asked for, not installed: {' '.join(wanted)}"
                caution("missing-tools", asked)
                write_whole(self._lacking, self._setup_id)
        else:
            self._install(manager, [*missing], wanted)
        if manager or not wanted:
            remove_file(self._lacking)

    def _install(self, manager: str, names: list[str], wanted: Sequence[str]) -> None:
        log = f"{self.setup.folder}/logs/tools.log"
        packages = Packages(manager, Retries(log), int(self.values.lock_patience))
        # Most images have certificates, the smallest ones don't.
        if names and not os.path.exists("/etc/ssl/certs/ca-certificates.crt"):
            names.append("ca-certificates")
        names += wanted
        if names:
            packages.install(names)
        elif packages.is_apt:
            packages.repair()


def _missing() -> list[str]:
    return [name for name in _TOOLS if not which(name)]
