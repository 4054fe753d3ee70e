"""Find what exists only on a box: what is running there, and what was made in its trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.link.handle import BoxOptions
from bootstrap.protocol.box_work import BoxWork
from bootstrap.protocol.made_there import BoxContent, UnsentContent
from bootstrap.protocol.probe import BoxState
from bootstrap.repo.here import LocalRepository, read
from bootstrap.repo.identity import known_folder
from bootstrap.repo.names import shown
from bootstrap.runs.connection import BoxConnection
from bootstrap.runs.selection import qualified, repository_names
from bootstrap.sync.back import bring_from, look_at_work, only_there
from bootstrap.ui.screen import Screen

_NAMED = 5
_KNOWN_ONLY_THERE = ("staged", "unread", "repositories")
"""Kinds that only the box itself can find, even after its edits were fetched."""


@dataclass(frozen=True)
class Unsafe:
    """Something that would be lost with the box."""

    kind: str
    """run, queued, processes, setup; results; edits, staged, files, commits, repositories, unread;
    unknown, unseen."""
    where: str
    """The run, or the tree."""
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"

    def as_dict(self) -> dict[str, str]:
        """Return what `--json` prints."""
        return {"kind": self.kind, "where": self.where, "what": self.what}


def find_live(state: BoxState) -> list[Unsafe]:
    """Return what is active there: runs, queued runs, leftover processes of runs, a setup."""
    names = repository_names({run.repo_key for run in state.runs})
    found = []
    for run in state.runs:
        if run.goes_on:
            kind = "run" if run.state == "running" else "queued"
            found.append(Unsafe(kind, qualified(run, names), run.outcome()))
        elif run.left:
            found.append(Unsafe("processes", qualified(run, names), run.outcome()))
    if state.working:
        found.append(Unsafe("setup", "setup", str(state.holder or f"{state.working[0]} at work")))
    return found


def find_ended_since(before: BoxState, now: BoxState) -> list[Unsafe]:
    """Return runs that ended after results were checked: their results were not."""
    names = repository_names({run.repo_key for run in now.runs})
    seen = {(run.repo_key, run.name, run.started) for run in before.runs if not run.goes_on}
    return [
        Unsafe("results", qualified(run, names), "it ended after results were looked at")
        for run in now.runs
        if not run.goes_on and (run.repo_key, run.name, run.started) not in seen
    ]


class BoxTrees:
    """The trees of a box, compared with the repositories on this machine."""

    def __init__(
        self, options: BoxOptions, connection: BoxConnection, made: BoxContent, screen: Screen
    ) -> None:
        self._options, self._connection, self._screen = options, connection, screen
        self._made = made

    def bring_home(self) -> list[Unsafe]:
        """Fetch commits and edits of the current repository; return what failed, and why."""
        found = []
        for tree in self._made.trees:
            here = self._here(tree)
            if here is None or tree.beside or tree.repo_key != self._connection.own:
                continue
            try:
                brought = bring_from(self._connection, here, self._screen, without_results=True)
            except BoxstrapError as error:
                if type(error) is not BoxstrapError:
                    raise
                found.append(Unsafe("unread", tree.name, error.what))
                continue
            if brought.new:
                self._screen.note("home", "; ".join(brought.lines()[: len(brought.refs)]))
        return found

    def find_unsafe(self) -> list[Unsafe]:
        """Return what is in no repository on this machine. Raises UnreachableError, NoAnswer."""
        if not self._made.is_set_up:
            what = "boxstrap has no folder there, so it is unknown what is on it"
            return [Unsafe("unknown", self._connection.box.known.name, what)]
        found = (one for tree in self._made.trees for one in self._of_tree(tree))
        return list(dict.fromkeys(found))  # refs and files of one tree may both be unread

    def _of_tree(self, tree: UnsentContent) -> Iterator[Unsafe]:
        here = self._here(tree)
        lost = only_there(here, {commit for commit, _ in tree.refs}) if here else None
        refs = [ref for commit, ref in tree.refs if lost is None or commit in lost]
        if refs:
            yield Unsafe("commits", tree.name, f"commits that are only there: {_few(refs)}")
        compared = self._compared(tree, here)
        if compared is not None:
            yield from compared
        for content in tree.holds:
            if compared is None or content.kind in _KNOWN_ONLY_THERE:
                yield Unsafe(content.kind, tree.name, str(content))

    def _compared(self, tree: UnsentContent, here: LocalRepository | None) -> list[Unsafe] | None:
        """Compare a main tree's edits with what was fetched; None if that is impossible."""
        if here is None or tree.beside:
            return None
        found = list[list[Unsafe]]()
        for without_results in (True, False):  # `sync --back` also fetches new files in results
            work = look_at_work(self._connection, here, without_results=without_results)
            if work is None or Path(work.folder).name != tree.name:
                return None
            found.append(list(_not_home(tree, work, here)))
            if not found[-1]:
                return []
        return found[0]

    def _here(self, tree: UnsentContent) -> LocalRepository | None:
        """Return the tree's repository on this machine, if there is one."""
        try:
            if tree.repo_key == self._connection.own:
                return read(self._options.place)
            folder = known_folder(tree.repo_key, tree.root)
            if folder is None:
                return None
            return read(folder.parent if folder.name == ".git" else folder)
        except UsageError:
            return None


def _not_home(tree: UnsentContent, work: BoxWork, here: LocalRepository) -> Iterator[Unsafe]:
    if work.edits and only_there(here, [work.edits]):
        kinds = [str(one) for one in tree.holds if one.kind in ("edits", "files")]
        yield Unsafe("edits", tree.name, "; ".join(kinds) or "edits made on the box")
    if work.left:
        what = "too large to come home, or repositories of their own"
        yield Unsafe("files", tree.name, f"{what}: {_few(work.left)}")
    if work.unread or not work.base:
        yield Unsafe("unread", tree.name, "git can't tell what was made there")


def _few(names: list[str] | tuple[str, ...]) -> str:
    more = ", …" if len(names) > _NAMED else ""
    return ", ".join(map(shown, names[:_NAMED])) + more
