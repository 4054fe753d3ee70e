"""Which provider a box belongs to, by what it shows: variables' names and files.

The hints are data of the shipped profiles (`provider.detect`). They are read
here without the models: a first contact has no time to lose.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

import yaml

from bootstrap import paths

FALLBACK = "ssh"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Hints(NamedTuple):
    """What a box shows: names of variables and paths of files."""

    env: frozenset[str]
    files: frozenset[str]


def recognise(env_names: Collection[str], files: Collection[str]) -> str:
    """The shipped profile that most of the signs point to; `ssh` where none does."""
    shown_env, shown_files = frozenset(env_names), frozenset(files)
    hits = {
        name: len(hints.env & shown_env) + len(hints.files & shown_files)
        for name, hints in _hints().items()
    }
    best = max(hits, key=lambda name: hits[name], default=FALLBACK)
    return best if hits.get(best) else FALLBACK


def other_than(own: Hints, env_names: Collection[str], files: Collection[str]) -> str:
    """The provider whose signs a box shows, where it shows none of `own`; "" for no contradiction.

    Without hints of its own a profile is for any host.
    """
    if not (own.env or own.files) or own.env & set(env_names) or own.files & set(files):
        return ""
    shown = recognise(env_names, files)
    return "" if shown == FALLBACK else shown


def all_hints() -> Hints:
    """Every variable and file that a box should be asked for."""
    each = _hints().values()
    return Hints(
        frozenset().union(*(hints.env for hints in each)),
        frozenset().union(*(hints.files for hints in each)),
    )


@lru_cache(maxsize=1)
def _hints() -> dict[str, Hints]:
    found = {}
    for path in sorted(paths.shipped("profiles").glob("*.yaml")):
        profile = yaml.load(path.read_bytes(), Loader=_LOADER)  # noqa: S506  (a safe loader)
        detect = profile.get("provider", {}).get("detect", {})
        if detect:
            found[path.stem] = Hints(
                frozenset(detect.get("env", ())), frozenset(detect.get("files", ()))
            )
    return found
