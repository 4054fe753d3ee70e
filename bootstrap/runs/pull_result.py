"""The result of a pull, as JSON and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bootstrap.errors import NotSafeError
from bootstrap.repo.names import shown
from bootstrap.text.sizes import duration, number, size, speed
from bootstrap.transfer.manifest import Manifest
from bootstrap.transfer.puller import NOTHING

_MOST_NAMED = 20


@dataclass
class Pulled:
    """The result of a pull."""

    manifest: Manifest
    place: Path
    landed: Mapping[str, str] = field(default_factory=dict)
    """Pulled files: path on the box to path below the local folder."""
    received: int = 0
    seconds: float = 0.0
    receipt: Path | None = None

    def as_dict(self) -> dict[str, object]:
        """As `--json` prints it."""
        manifest = self.manifest
        return {
            **manifest.origin.as_dict(),
            "place": str(self.place),
            "live": manifest.live,
            "files": len(manifest.files),
            "landed": dict(self.landed),
            "received": self.received,
            "seconds": round(self.seconds, 3),
            "missing": dict(manifest.missing),
            "left_out": dict(manifest.left_out),
            "links": list(manifest.links),
            "receipt": str(self.receipt) if self.receipt else None,
        }

    def lines(self) -> list[str]:
        """As lines of text."""
        count, had = len(self.landed), len(self.manifest.on_box) - len(self.landed)
        rate = speed(self.received / max(self.seconds, 0.001))
        came = f"{_files(count)}, {size(self.received)} in {duration(self.seconds)} ({rate})"
        words = [came] if count else []
        words += [f"{_files(had)} here already"] if had > 0 else []
        name = self.manifest.origin.run
        said = [f"{name}: {'; '.join(words) or 'nothing to pull'}", ""]
        beside = {path: place for path, place in self.landed.items() if path != place}
        left = self.manifest.left_out.items()
        said[1:1] = [f"  {path} {NOTHING[why]}" for path, why in left][:_MOST_NAMED]
        said[1:1] = [f"  beside another file: {shown(place)}" for place in beside.values()]
        return [*said[:-1], f"  in {self.place}"]

    def check(self) -> None:
        """Raise NotSafeError with the missing files, if there are any."""
        missing = self.manifest.missing
        if not missing:
            return
        head = f"{_files(len(missing))} of {self.manifest.origin.run} were not pulled:"
        rows = [f"  {path}: {why}" for path, why in missing.items()]
        more = [f"  and {number(len(rows) - _MOST_NAMED)} more"] if len(rows) > _MOST_NAMED else []
        still = (
            "The run is still running: --watch pulls files as they become complete. "
            if self.manifest.live
            else ""
        )
        raise NotSafeError(
            "\n".join([head, *rows[:_MOST_NAMED], *more]),
            where=self.manifest.origin.box,
            hint=f"{still}Everything else is here. Run the same command again to go on.",
        )


def _files(count: int) -> str:
    return f"{number(count)} file{'' if count == 1 else 's'}"
