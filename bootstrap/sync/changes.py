"""The files that differ between two trees, as git compares them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bootstrap.repo.changes import changes_between
from bootstrap.repo.git import Folders
from bootstrap.repo.names import decoded, shown

_KINDS = {b"A": "new", b"D": "removed"}
_SHOWN = 5


@dataclass(frozen=True)
class FileChanges:
    """Files by how they changed."""

    updated: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.updated or self.new or self.removed)

    def __str__(self) -> str:
        """One line: the number of each kind, and the names if they are few."""
        counts = ", ".join(f"{len(names)} {kind}" for kind, names in vars(self).items() if names)
        names = (*self.updated, *self.new, *self.removed)
        listed = f" ({', '.join(map(shown, names))})" if 0 < len(names) <= _SHOWN else ""
        return f"{counts or 'no file changed'}{listed}"

    def as_dict(self) -> dict[str, list[str]]:
        """As `--json` prints it."""
        return {kind: list(map(shown, names)) for kind, names in vars(self).items()}


def file_changes(folders: Folders, before: Sequence[str], after: str) -> FileChanges:
    """Return the files of `after` that differ from all trees `before`, by how they differ from
    the first one. Raises GitError."""
    found: dict[str, list[str]] = {"updated": [], "new": [], "removed": []}
    others = [
        {change.path for change in changes_between(folders, other, after)} for other in before[1:]
    ]
    for change in changes_between(folders, before[0], after):
        if not all(change.path in other for other in others):
            continue
        found[_KINDS.get(change.status, "updated")].append(decoded(change.path))
    return FileChanges(**{kind: tuple(names) for kind, names in found.items()})
