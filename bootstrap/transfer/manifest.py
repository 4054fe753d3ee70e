"""The manifest of a run's results: path, size and SHA-256 of each file; and which run it was."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bootstrap.box.lease.lease_safety import safe_note
from bootstrap.transfer.pulled import PulledFile

VERSION = 1


@dataclass(frozen=True)
class RunOrigin:
    """The run that results are from."""

    box: str
    repository: str
    """Its key on the box."""
    run: str
    commit: str = ""
    snapshot: str = ""
    """The snapshot of its files: the commit with the changes on it."""
    command: str = ""
    profile: str = ""
    """The digest of the profile that started it; "" from earlier versions."""

    def as_dict(self) -> dict[str, object]:
        """Return the fields as documents have them."""
        return {
            "box": self.box,
            "repository": self.repository,
            "run": self.run,
            "commit": self.commit,
            "snapshot": self.snapshot or None,
            "with_changes": self.snapshot not in ("", self.commit),
            "command": self.command,
            "profile": self.profile or None,
        }


@dataclass(frozen=True)
class Manifest:
    """The results of a run that are here."""

    origin: RunOrigin
    results: Sequence[str]
    files: Mapping[str, PulledFile]
    """By path on the box."""
    on_box: frozenset[str]
    """Those that were on the box at the last look; the others were removed there."""
    links: Sequence[str] = ()
    """Links on the box to results; what they lead to is here."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """What has no content to pull, and why."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """What is not here, and why."""
    live: bool = False
    """Whether the run was still running."""

    def text(self) -> str:
        """Return the document, as it is saved here."""
        document = {
            "v": VERSION,
            **self.origin.as_dict(),
            "live": self.live,
            "complete": not self.missing,
            "results": list(self.results),
            "files": [self._row(path) for path in sorted(self.files)],
            "links": list(self.links),
            "left_out": dict(self.left_out),
            "missing": dict(self.missing),
        }
        return json.dumps(document, indent=1) + "\n"

    def _row(self, path: str) -> dict[str, object]:
        one = self.files[path]
        return {
            "path": path,
            "size": one.home.size,
            "sha256": one.sha256,
            **({"here": one.place} if one.place != path else {}),
            **({} if path in self.on_box else {"on_box": False}),
        }

    def present(self) -> dict[str, tuple[int, str]]:
        """Return size and digest of each file that is on the box."""
        return {
            path: (one.home.size, one.sha256)
            for path, one in self.files.items()
            if path in self.on_box
        }

    def safe_note(self) -> str:
        """Return what the box may note about the run if all its files there are here."""
        return safe_note(self.present())
