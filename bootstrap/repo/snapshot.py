"""The work that stands in the editor, as one object with a fixed id: what travels to a box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .git import Folders
from .here import LocalRepository

Include = Literal["all", "tracked", "commit"]
"""Which changes travel with the commit: all, those of tracked files, none."""


@dataclass(frozen=True)
class ChangeCount:
    """How many files differ from the commit, as git itself compares them."""

    modified: int = 0
    new: int = 0
    deleted: int = 0

    def __bool__(self) -> bool:
        return bool(self.modified or self.new or self.deleted)

    def __str__(self) -> str:
        kinds = ((self.modified, "modified"), (self.new, "new"), (self.deleted, "deleted"))
        return ", ".join(f"{number} {kind}" for number, kind in kinds if number)


@dataclass(frozen=True)
class Snapshot:
    """A commit with the changes that stand in its working tree.

    `id` is the snapshot's commit object, with `commit` as its parent; it is `commit` itself where
    the content is the commit's own. `tree` is the id of the content. `folders` leads git to where
    the objects of all of them are read.
    """

    commit: str
    id: str
    tree: str
    changes: ChangeCount
    folders: Folders


def take_snapshot(here: LocalRepository, include: Include = "all") -> Snapshot:
    """What travels of the repository `here`. Nothing of it is written."""
    del include  # nothing but the commit travels yet
    return Snapshot(here.commit, here.commit, here.tree, ChangeCount(), here.folders)
