"""Recognise a box's provider by the names of its variables and its files.

The hints are in the shipped profiles (`provider.detect`). They are read here without a YAML
library: importing one would take as long as a connected box takes to answer.
"""

import re
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from bootstrap import paths

FALLBACK = "ssh"
_COMMENT = re.compile(r" #.*")
_WORD = re.compile(r"[\w/][\w./-]*")


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
    """Return the provider that a box shows signs of if it shows none of `own`, else "". A profile
    without hints fits any host."""
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
    profiles = sorted(paths.shipped("profiles").glob("*.yaml"))
    texts = {path.stem: path.read_text(encoding="utf-8") for path in profiles}
    found = {
        name: Hints(_listed(text, "env"), _listed(text, "files")) for name, text in texts.items()
    }
    return {name: hints for name, hints in found.items() if hints.env or hints.files}


def _listed(profile: str, kind: str) -> frozenset[str]:
    """Return the names or paths in this list of `provider.detect`, as our own profiles have it."""
    detect = re.search(r"^  detect:\n((?:    .*\n)+)", profile, re.MULTILINE)
    listed = re.search(
        rf"^    {kind}:(.*\n(?:      .*\n)*)", detect[1] if detect else "", re.MULTILINE
    )
    return frozenset(_WORD.findall(_COMMENT.sub("", listed[1]) if listed else ""))
