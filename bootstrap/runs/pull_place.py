"""Where a run's results come to, and where it is noted what pulls put there."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from bootstrap.protocol.run import Run
from bootstrap.repo.place import repository_root
from bootstrap.transfer.landing import HomeFolder, Landing

FOLDER = "boxstrap-results"
"""In the repository; what is in it never travels."""


@dataclass(frozen=True)
class PullPlace:
    """A folder of the person's, and folders in it that are no links."""

    base: Path
    inside: tuple[str, ...] = ()

    @staticmethod
    def of(stood_in: Path, to: Path | None, box: str, run: Run) -> PullPlace:
        """The folder `to`, else one of the repository stood in."""
        if to is not None:
            return PullPlace(to.absolute())
        root = repository_root(stood_in) or stood_in
        return PullPlace(root.absolute(), (FOLDER, box, run.name))

    @property
    def path(self) -> Path:
        """All of it."""
        return self.base.joinpath(*self.inside)

    def landing(self, run: str) -> Landing:
        """Open it, made where it isn't there. Raises OSError, NotSafeError, BusyError."""
        self._ignore()
        return Landing(self.base, self.inside, run)

    def make(self) -> Path:
        """The folder, made where it isn't there. Raises OSError, NotSafeError at a link."""
        self._ignore()
        with HomeFolder(self.base, self.inside, make=True):
            return self.path

    def _ignore(self) -> None:
        """Git is told to ignore a folder of ours."""
        if self.inside:
            with HomeFolder(self.base, self.inside[:1], make=True) as folder:
                folder.write_new(".gitignore", b"*\n")

    def record(self, box_folder: Path, run: Run) -> Path:
        """The record of what pulls of this run put there."""
        words = "\0".join([run.repo_key, run.name, str(self.path)])
        digest = hashlib.sha256(os.fsencode(words)).hexdigest()[:16]
        return box_folder / "pulls" / f"{run.name}-{digest}.jsonl"
