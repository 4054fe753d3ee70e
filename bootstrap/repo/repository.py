"""Open a repository: find it, check its owner, read its settings, make a view of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from .git import AT_ONCE_S, NOWHERE, Folders, GitError, broken, run
from .names import decoded, shown
from .place import Place, find
from .view import View

_PARTIAL = re.compile(
    r"extensions\.partialclone|remote\..*\.(promisor|partialclonefilter)", re.DOTALL
)


@dataclass(frozen=True)
class Repository:
    """A repository that git can be run on. `settings` are the user's and its own."""

    place: Place
    settings: tuple[tuple[str, str | None], ...]
    view: View

    @property
    def folders(self) -> Folders:
        """The folders to give to git: with these it runs no program that the repository names."""
        return Folders(self.view.git_dir, None if self.place.bare else self.place.root)

    @property
    def partial(self) -> bool:
        """Whether it was cloned without all of its objects."""
        return any(_PARTIAL.fullmatch(key) for key, _ in self.settings)


def open_repository(path: Path, *, exactly: bool = False) -> Repository:
    """Open the repository around `path`; with `exactly` the bare one at `path` itself.

    Raises UsageError if there is none, or if it belongs to another user.
    """
    place = Place(path, path, path, bare=True) if exactly else find(path)
    strangers = place.strangers()
    if strangers and not is_trusted(place.root):
        raise not_yours(place.root, strangers[0])
    settings = _settings(place)
    if not place.bare and place.git_dir == place.common_dir and _says_bare(settings):
        place = Place(place.git_dir, place.git_dir, place.common_dir, bare=True)
    return Repository(place, settings, View(place, settings))


def not_yours(root: Path, stranger: Path) -> UsageError:
    """Return the error for a repository that another user may have planted."""
    return UsageError(
        f"this repository belongs to another user: {shown(str(stranger))}. None of it was read.",
        where=shown(str(root)),
        hint=f"If you trust it: git config --global --add safe.directory {shown(str(root))}",
    )


def is_trusted(root: Path) -> bool:
    """Whether the user's own `safe.directory` names the folder; the repository's doesn't count."""
    values: list[str] = []
    for scope in ("--system", "--global"):
        asked = ("config", scope, "--null", "--type=path", "--get-all", "safe.directory")
        values += decoded(run(NOWHERE, *asked, ok=range(256))).split("\0")[:-1]
    trusted = False
    for value in values:
        if not value:
            trusted = False  # as in git: what came before doesn't count
        elif value == "*" or Path(value).resolve() == root:
            trusted = True
        elif value.endswith("/*"):
            trusted = trusted or root.is_relative_to(Path(value[:-2]).resolve())
    return trusted


def _settings(place: Place) -> tuple[tuple[str, str | None], ...]:
    """Read all settings, in git's order. That runs no program."""
    try:
        printed = run(Folders(place.git_dir), "config", "--null", "--list", timeout=AT_ONCE_S)
    except GitError as failure:
        raise broken(place.root, failure) from failure
    pairs = (entry.partition("\n") for entry in decoded(printed).split("\0") if entry)
    return tuple((key, value if equals else None) for key, equals, value in pairs)


def _says_bare(settings: tuple[tuple[str, str | None], ...]) -> bool:
    said = [value for key, value in settings if key == "core.bare"]
    return bool(said) and (said[-1] is None or said[-1].lower() in ("true", "yes", "on", "1"))
