"""Select runs of a box: those of the current repository, unless more is asked for. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from bootstrap.errors import UsageError
from bootstrap.link.record import name_of_key
from bootstrap.protocol.run import Run

_SHOWN = 20


def repository_names(keys: Iterable[str]) -> dict[str, str]:
    """Map keys to short names of repositories; to the whole key if two names would be equal."""
    names = {key: name_of_key(key) for key in keys}
    often = Counter(names.values())
    return {key: name if often[name] == 1 else key for key, name in names.items()}


def qualified(run: Run, names: Mapping[str, str]) -> str:
    """Return a run with its repository, as `--run` takes it: `homework/train-2`."""
    return f"{names[run.repo_key]}/{run.name}"


def select_runs(
    runs: Sequence[Run], own: str, name: str | None, *, every: bool = False, where: str = ""
) -> list[Run]:
    """Return the selected runs, newest first, all of one repository unless `every` is set.

    `own` is the key of the current repository, "" for none; `name` may be qualified.
    Raises UsageError if there is no such run, or if several repositories could be meant.
    """
    names = repository_names({run.repo_key for run in runs})
    found = [run for run in runs if name in (None, run.name, qualified(run, names))]
    if not every:
        mine = [run for run in found if run.repo_key == own]
        found = mine or (found if name or not own else [])
    several = len({run.repo_key for run in found}) > 1
    if found and not (several and (name or not every)):
        return found
    listed = "".join(f"\n  --run {qualified(run, names)}" for run in (found or runs)[:_SHOWN])
    if several:
        what = f"{name} is a run of several repositories:" if name else "whose run is meant?"
        raise UsageError(f"{what}{listed}", where=where, hint="Name one of them.")
    raise _nothing(name, own, listed, where)


def _nothing(name: str | None, own: str, listed: str, where: str) -> UsageError:
    if not listed:
        what = f"there is no run {name} on this box" if name else "no run was started on this box"
        return UsageError(f"{what}.", where=where, hint="To start one: boxstrap setup")
    if name:
        what = f"there is no run {name} on this box; there is:{listed}"
    else:
        what = f"no run of {name_of_key(own)} is on this box; of others there is:{listed}"
    return UsageError(what, where=where, hint="Name one of them; `status` says what they do.")
