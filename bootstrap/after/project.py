"""The repository on a box, and its environment: what an editor, a shell or a command goes to."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from bootstrap.after.choose import repository_names
from bootstrap.after.visit import Visit
from bootstrap.errors import UsageError
from bootstrap.protocol.probe import BoxState, probe


@dataclass(frozen=True)
class RemoteProject:
    """A repository on a box, and its environment. Absolute paths."""

    folder: str
    venv: str

    @property
    def python(self) -> str:
        """The environment's interpreter."""
        return posixpath.join(self.venv, "bin", "python")


def project_of(there: Visit) -> RemoteProject:
    """That of the repository stood in, where the box has it; else that of the last setup from here.

    Raises UsageError where there is none, and where standing nowhere it could be one of several.
    """
    keys = {run.repo_key for run in there.box_state.runs}
    if not there.own and len(keys) > 1:
        names = sorted(repository_names(keys).values())
        raise UsageError(
            f"whose repository is meant? This box has {', '.join(names)}.",
            where=there.link.label,
            next_="Stand in one of them, or name it: --repo PATH",
        )
    box = there.box
    found = _of(there, there.box_state)
    if found is None and there.own and box.known.repo_key:
        key, root = box.known.repo_key, box.recall("repo_root")
        wire, workdir = there.link.wire, there.workdir
        found = _of(there, probe(wire, workdir=workdir, repo_key=key, repo_root=root))
    if found is None:
        raise UsageError(
            "no repository was set up on this box yet.",
            where=there.link.label,
            next_=f"Do that first: boxstrap setup --host {box.known.name}",
        )
    return found


def _of(there: Visit, box_state: BoxState) -> RemoteProject | None:
    """The project whose key the box was asked about, if its folder is there."""
    facts = box_state.facts
    folder = box_state.repo_dir
    if "placed" not in facts or not folder.startswith("/"):
        return None
    venv = facts.get("venv") or there.box.recall("venv") or ".venv"
    if venv.startswith("~/"):
        venv = posixpath.join(facts.get("home", "/"), venv[2:])
    return RemoteProject(folder, posixpath.join(folder, venv))
