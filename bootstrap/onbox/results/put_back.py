"""A run that goes on from another one begins with what that one left, also where later runs wrote
to the same places since."""

from __future__ import annotations

import os
from contextlib import suppress

from ..run_folder import lines_of
from .complete_files import Files, FileState
from .copies import FOREVER, CantKeep, clone, copy_bytes
from .run_results import KEPT, Neighbours, RunResults, is_unchanged


def put_back(run: RunResults) -> None:
    """Put back the results of the run that this one resumes. What others have in place is safe
    already. Raises CantKeep, OSError."""
    for name in lines_of(f"{run.path}/resumes")[:1]:
        old = _other(run, name)
        for path, copy, state in changes(old):
            place = old.place_of(path)
            if copy:
                _copy(copy, place, state)
            else:
                os.unlink(place)


def changes(old: RunResults) -> list[tuple[str, str, FileState]]:
    """Return what makes its results be as it left them: a path, from where it is copied ("": it is
    removed), and its state. Raises CantKeep where one of them is not on the box any more."""
    near = Neighbours(old)
    if not near.later:
        return []
    made, now = old.wanted(old.made() or Files()), old.find()
    before = _earlier(old)
    found: list[tuple[str, str, FileState]] = []
    for path in {**made, **now}:
        here, state = now.get(path), made.get(path)
        owner = near.owner(old.place_of(path), here) if here else None
        if state and not (here and is_unchanged(old, path, state, here, near.later)):
            if not old.has_kept(path, state) or (owner and not owner.is_over):
                raise CantKeep("overwritten")
            found.append((path, f"{old.path}/{KEPT}/{path}", state))
        elif here and not state and owner in near.later and owner.is_over:
            found.append((path, before.get(path, ""), here))
    return found


def _other(run: RunResults, name: str) -> RunResults:
    return RunResults(os.path.normpath(f"{run.path}/../../{name}"))


def _earlier(old: RunResults) -> dict[str, str]:
    """Return the copies of what those made from which it went on itself."""
    found: dict[str, str] = {}
    while name := "".join(lines_of(f"{old.path}/resumes")[:1]):
        old = _other(old, name)
        kept = (path for path, state in (old.made() or {}).items() if old.has_kept(path, state))
        found = {**{path: f"{old.path}/{KEPT}/{path}" for path in kept}, **found}
    return found


def _copy(source: str, place: str, state: FileState) -> None:
    """Copy a kept file, or a link, to its place as a whole, with its time."""
    os.makedirs(os.path.dirname(place), exist_ok=True)
    new = f"{place}.new.{os.getpid()}"
    try:
        if os.path.islink(source):
            os.symlink(os.readlink(source), new)
        else:
            with open(source, "rb") as kept, open(new, "wb") as copy:
                if not clone(kept.fileno(), copy.fileno()):
                    copy_bytes(kept.fileno(), copy.fileno(), FOREVER)
            os.utime(new, ns=(state.modified, state.modified))
        os.replace(new, place)
    finally:
        with suppress(OSError):
            os.unlink(new)
