"""Build queries: the static scripts of `templates/queries`, preceded by their variables."""

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
"""What every query may use: where boxstrap's folder is, and which processes and runs are alive."""
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
"""More of the library, only for queries that need it, since it is sent each time. `queries/` are
parts that queries share and setups don't use."""
_AFTER = {"status": "probe"}
"""Queries that continue another one. They redact their output themselves."""


@dataclass(frozen=True)
class BoxRedaction:
    """The secrets that the box redacts in an answer, since their values are not on this machine.

    The first `skip` bytes of the answer are dropped. With `same_length` a replacement is as long
    as its secret, so that byte offsets in a file stay correct.
    """

    names: Sequence[str] = ()
    skip: int = 0
    same_length: bool = False

    def variables(self) -> dict[str, Value]:
        """Return the variables of the query `redacted`: names, options, and the program."""
        return {
            "redact": " ".join(self.names),
            "skip": self.skip,
            "same_length": self.same_length,
            "redactor": _redactor(),
        }


NO_REDACTION = BoxRedaction()


def build_query(name: str, /, there: BoxRedaction = NO_REDACTION, **values: Value) -> str:
    """Return the script of `templates/queries/<name>.sh` after `workdir` and its own variables.

    `there`: secrets that the box redacts in its output before sending it.
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
    """Return the program of `text/redact.py`, minified."""
    from bootstrap.render.pack import bare_python  # imported only if the box redacts

    return bare_python(Path(redact.__file__).read_text(encoding="utf-8"))


def build_long_query(name: str, /, **values: Value) -> str:
    """As `build_query`, for long scripts: compressed, since an SSH server need not accept a packet
    of more than 32 KiB (RFC 4253, 6.1)."""
    text = _shared(name) + _bare(shell_part("queries", name))
    packed = b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return (
        assignments({"workdir": "", **values}) + f'eval "$(echo {packed} | base64 -d | gzip -dc)"\n'
    )


def _bare(script: str) -> str:
    """Remove comments and indentation, since the script is sent each time."""
    lines = (line.strip() for line in script.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))
