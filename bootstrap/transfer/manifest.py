"""The manifest of a run's results: which file, how large, with which digest; and whose they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bootstrap.box.lease.lease_safety import safe_note
from bootstrap.transfer.pulled import PulledFile

VERSION = 1


@dataclass(frozen=True)
class RunOrigin:
    """Which run results are of."""

    box: str
    repository: str
    """Its key on the box."""
    run: str
    commit: str = ""
    snapshot: str = ""
    """What its files were, with the changes upon the commit."""
    command: str = ""
    profile: str = ""
    """The digest of the profile that it was begun by; "" from earlier versions."""

    def as_dict(self) -> dict[str, object]:
        """As documents hold it."""
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
    """What is here of a run."""

    origin: RunOrigin
    results: Sequence[str]
    files: Mapping[str, PulledFile]
    """By the path that each has on the box."""
    on_box: frozenset[str]
    """Those of them that stood there at the last look; the others were removed there."""
    links: Sequence[str] = ()
    """Links on the box to results; what they lead to is here."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """What has no content that could come, and why."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """What is not here, and why."""
    live: bool = False
    """Whether the run went on."""

    def text(self) -> str:
        """The document, as it lies here."""
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
        """Size and digest of each file that stands on the box."""
        return {
            path: (one.home.size, one.sha256)
            for path, one in self.files.items()
            if path in self.on_box
        }

    def safe_note(self) -> str:
        """What the box may note of the run, where all that stands there is here."""
        return safe_note(self.present())
