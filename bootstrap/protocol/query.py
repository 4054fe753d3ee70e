"""Queries: the static scripts of `templates/queries`, with their values in front."""

from __future__ import annotations

import gzip
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bootstrap.render.parts import shell_part
from bootstrap.render.quote import Value, assignments
from bootstrap.text import redact

_SHARED = (("queries", "home"), ("lib", "process"), ("lib", "run_state"))
"""What every question may use: where boxstrap's folder is, and what lives."""
_ALSO = {
    "back": ("repository", "queries/holds"),
    "clean": ("base", "repository", "git", "trees", "queries/holds"),
    "first": ("first_output",),
    "log_start": ("log_times",),
    "made": ("base", "repository", "git", "trees", "queries/holds"),
    "probe": ("packs", "repository"),
    "receive": ("packs", "git_locks", "repository", "store"),
    "run": ("repository", "packs", "git_locks", "store", "sent_state", "first_output"),
    "server": ("base", "errors", "uv"),
    "status": ("packs", "repository"),
    "stop": ("run_processes", "queue"),
    "take_dependency": ("packs", "git_locks", "store"),
    "sync": (
        *("base", "setup", "repository", "errors", "lock", "packs", "git_locks", "git"),
        *("place", "trees", "store", "sent_state"),
    ),
}
"""More of the library, for those that need it: these bytes travel too. `queries/` is what several
queries have and no setup."""
_AFTER = {"status": "probe"}
"""Queries that go on where another one ends. They redact by themselves what needs it."""


@dataclass(frozen=True)
class RedactedThere:
    """The secrets that the box itself takes out of an answer: those of which no value is here.

    `skip` is how many bytes of the answer go; with `same_length` what stands for a secret is as
    long as it was, so that who counts bytes of a file counts right.
    """

    names: Sequence[str] = ()
    skip: int = 0
    same_length: bool = False

    def variables(self) -> dict[str, Value]:
        """What the query `redacted` needs: the names, and this machine's own program."""
        return {
            "redact": " ".join(self.names),
            "skip": self.skip,
            "same_length": self.same_length,
            "redactor": _redactor(),
        }


NOTHING_THERE = RedactedThere()


def build_query(name: str, /, there: RedactedThere = NOTHING_THERE, **values: Value) -> str:
    """The script of `templates/queries/<name>.sh`, behind `workdir` and its own variables.

    `there`: secrets that are taken out of what it prints, before the box sends it.
    """
    shared, own = _shared(name), _bare(shell_part("queries", name))
    if there.names:
        shared += _bare(shell_part("queries", "redacted"))
        values |= there.variables()
    if name in _AFTER:
        shared += _bare(shell_part("queries", _AFTER[name]))
        values.setdefault("redact", "")
    elif there.names:
        own = f"find_home\n(\n{own}) | redacted\n"
    return assignments({"workdir": "", **values}) + shared + own


def _shared(name: str) -> str:
    also = [f"lib/{part}".split("/")[-2:] for part in _ALSO.get(name, ())]
    return _bare("".join(shell_part(kind, part) for kind, part in (*_SHARED, *also)))


@cache
def _redactor() -> str:
    """The program of `text/redact.py`, as short as it can be."""
    from bootstrap.render.pack import bare_python  # a start that redacts nothing there needs none

    return bare_python(Path(redact.__file__).read_text(encoding="utf-8"))


def build_long_query(name: str, /, **values: Value) -> str:
    """The same for one that is long: compressed, since no more than 32 KiB of a command are sure to
    be taken (RFC 4253, 6.1)."""
    text = _shared(name) + _bare(shell_part("queries", name))
    packed = b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return (
        assignments({"workdir": "", **values}) + f'eval "$(echo {packed} | base64 -d | gzip -dc)"\n'
    )


def _bare(script: str) -> str:
    """Without comments and indentation: these bytes travel each time."""
    lines = (line.strip() for line in script.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))
