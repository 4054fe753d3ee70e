"""Which files differ between two trees, as git compares them."""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap.repo.changes import changes_between
from bootstrap.repo.git import Folders
from bootstrap.repo.names import decoded, shown

_KINDS = {b"A": "new", b"D": "removed"}
_SHOWN = 5


@dataclass(frozen=True)
class FileChanges:
    """Files by what became of them."""

    updated: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.updated or self.new or self.removed)

    def __str__(self) -> str:
        """In one line: how many of each, and where they are few, which."""
        counts = ", ".join(f"{len(names)} {kind}" for kind, names in vars(self).items() if names)
        names = (*self.updated, *self.new, *self.removed)
        listed = f" ({', '.join(map(shown, names))})" if 0 < len(names) <= _SHOWN else ""
        return f"{counts or 'no file changed'}{listed}"

    def as_dict(self) -> dict[str, list[str]]:
        """As `--json` prints it."""
        return {kind: list(map(shown, names)) for kind, names in vars(self).items()}


def file_changes(folders: Folders, before: str, after: str) -> FileChanges:
    """What leads from the tree of `before` to that of `after`. Raises GitError."""
    found: dict[str, list[str]] = {"updated": [], "new": [], "removed": []}
    for change in changes_between(folders, before, after):
        found[_KINDS.get(change.status, "updated")].append(decoded(change.path))
    return FileChanges(**{kind: tuple(names) for kind, names in found.items()})
