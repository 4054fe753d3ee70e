"""Where a run's results are put, and where pulls record what they put there."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from bootstrap.protocol.run import Run
from bootstrap.repo.place import repository_root
from bootstrap.transfer.landing import HomeFolder, Landing

FOLDER = "boxstrap-results"
"""A folder in the repository; its content is never sent to a box."""


@dataclass(frozen=True)
class PullPlace:
    """A folder of the user's, and folders inside it that must not be links."""

    base: Path
    inside: tuple[str, ...] = ()

    @staticmethod
    def of(stood_in: Path, to: Path | None, box: str, run: Run) -> PullPlace:
        """Return the folder `to`, else one in the current repository."""
        if to is not None:
            return PullPlace(to.absolute())
        root = repository_root(stood_in) or stood_in
        return PullPlace(root.absolute(), (FOLDER, box, run.name))

    @property
    def path(self) -> Path:
        """The whole path."""
        return self.base.joinpath(*self.inside)

    def landing(self, run: str) -> Landing:
        """Open it, created if missing. Raises OSError, NotSafeError, BusyError."""
        self._ignore()
        return Landing(self.base, self.inside, run)

    def make(self) -> Path:
        """Return the folder, created if missing. Raises OSError, or NotSafeError at a link."""
        self._ignore()
        with HomeFolder(self.base, self.inside, make=True):
            return self.path

    def _ignore(self) -> None:
        """Make git ignore boxstrap's folder."""
        if self.inside:
            with HomeFolder(self.base, self.inside[:1], make=True) as folder:
                folder.write_new(".gitignore", b"*\n")

    def record(self, box_folder: Path, run: Run) -> Path:
        """Return the file that records what pulls of this run put there."""
        words = "\0".join([run.repo_key, run.name, str(self.path)])
        digest = hashlib.sha256(os.fsencode(words)).hexdigest()[:16]
        return box_folder / "pulls" / f"{run.name}-{digest}.jsonl"
