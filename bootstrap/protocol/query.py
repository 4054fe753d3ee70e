"""Queries: the static scripts of `templates/queries`, with their values in front."""

from __future__ import annotations

from bootstrap.render.parts import shell_part
from bootstrap.render.quote import Value, assignments

_SHARED = (("queries", "home"), ("lib", "process"), ("lib", "run_state"))
"""What every question may use: where boxstrap's folder is, and what lives."""
_ALSO = {
    "probe": ("packs", "repository"),
    "receive": ("packs", "git_locks", "repository"),
    "stop": ("run_processes",),
}
"""More of the library, for those that need it: these bytes travel too."""


def build_query(name: str, /, **values: Value) -> str:
    """The script of `templates/queries/<name>.sh`, behind `workdir` and its own variables."""
    also = [("lib", part) for part in _ALSO.get(name, ())]
    parts = [shell_part(kind, part) for kind, part in (*_SHARED, *also, ("queries", name))]
    return assignments({"workdir": "", **values}) + _bare("".join(parts))


def _bare(script: str) -> str:
    """Without comments and indentation: these bytes travel each time."""
    lines = (line.strip() for line in script.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith("#"))
