"""The repository on a box, and its environment, for editors, shells and commands."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from bootstrap.errors import UsageError
from bootstrap.protocol.probe import BoxState, probe
from bootstrap.runs.connection import BoxConnection
from bootstrap.runs.selection import repository_names


@dataclass(frozen=True)
class RemoteProject:
    """A repository on a box, and its environment. Absolute paths."""

    folder: str
    venv: str

    @property
    def python(self) -> str:
        """The environment's interpreter."""
        return posixpath.join(self.venv, "bin", "python")


def project_of(connection: BoxConnection) -> RemoteProject:
    """Return the current repository's project if the box has it, else the last setup's from here.

    Raises UsageError if there is none, or if outside a repository several could be meant.
    """
    keys = {run.repo_key for run in connection.box_state.runs}
    if not connection.own and len(keys) > 1:
        names = sorted(repository_names(keys).values())
        raise UsageError(
            f"whose repository is meant? This box has {', '.join(names)}.",
            where=connection.link.label,
            hint="Run this in one of them, or name it: --repo PATH",
        )
    box = connection.box
    found = _of(connection, connection.box_state)
    if found is None and connection.own and box.known.repo_key:
        key, root = box.known.repo_key, box.known.repo_root
        wire, workdir = connection.link.wire, connection.workdir
        found = _of(connection, probe(wire, workdir=workdir, repo_key=key, repo_root=root))
    if found is None:
        raise UsageError(
            "no repository was set up on this box yet.",
            where=connection.link.label,
            hint=f"Do that first: boxstrap setup --host {box.known.name}",
        )
    return found


def _of(connection: BoxConnection, box_state: BoxState) -> RemoteProject | None:
    """Return the project that the box was probed for, if its folder is there."""
    facts = box_state.facts
    folder = box_state.repo_dir
    if "placed" not in facts or not folder.startswith("/"):
        return None
    venv = facts.get("venv") or connection.box.known.venv or ".venv"
    if venv.startswith("~/"):
        venv = posixpath.join(facts.get("home", "/"), venv[2:])
    return RemoteProject(folder, posixpath.join(folder, venv))
