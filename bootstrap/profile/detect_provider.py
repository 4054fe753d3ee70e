"""Recognise a box's provider by the names of its variables and its files.

The hints are in the shipped profiles (`provider.detect`). They are read here
as plain YAML, without the schema, to keep a first contact fast.
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
    """Signs of a provider: names of variables and paths of files."""

    env: frozenset[str]
    files: frozenset[str]


def recognise(env_names: Collection[str], files: Collection[str]) -> str:
    """Return the shipped profile that most of the signs point to; `ssh` if none does."""
    shown_env, shown_files = frozenset(env_names), frozenset(files)
    hits = {
        name: len(hints.env & shown_env) + len(hints.files & shown_files)
        for name, hints in _hints().items()
    }
    best = max(hits, key=lambda name: hits[name], default=FALLBACK)
    return best if hits.get(best) else FALLBACK


def other_than(own: Hints, env_names: Collection[str], files: Collection[str]) -> str:
    """Return the provider that a box shows signs of if it shows none of `own`, else "".

    A profile without hints fits any host.
    """
    if not (own.env or own.files) or own.env & set(env_names) or own.files & set(files):
        return ""
    shown = recognise(env_names, files)
    return "" if shown == FALLBACK else shown


def all_hints() -> Hints:
    """Return every variable and file that a box should be asked about."""
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
