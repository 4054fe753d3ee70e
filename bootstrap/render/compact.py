"""The compact script: those parts of the full one's library, steps and checks that fit in a paste.

It adds only `templates/compact/main.sh`. What it leaves out: the steps and parts listed here, lines
that end in `# full`, and what nothing calls then (`reduce.py`).
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from bootstrap.render import uv_release
from bootstrap.render.carrier import by_address, carried_steps
from bootstrap.render.editions import COMPACT, needs_full
from bootstrap.render.pack import bare_python
from bootstrap.render.parts import LIBRARY, box_files, known_hosts, shell_part
from bootstrap.render.quote import Value
from bootstrap.render.reduce import program, reachable_shell, without_full, without_unused
from bootstrap.render.script import Parts, assemble_script
from bootstrap.render.variables import Source, variables

if TYPE_CHECKING:
    from bootstrap.profile.schema import Profile

LEFT_OUT_STEPS = ("smoke",)
"""Skipped steps. A profile that needs more is refused instead (`needs_full`)."""
LEFT_OUT_PARTS = ("main",)
"""Parts of the library that it leaves out: it has its own `main`."""

OWN_PARTS = (("compact", "main"), ("doors", "terminal"), ("doors", "access"))

PROGRAMS = ("verify.py", "gpu_reader.py", "fetch_uv.py", "pip_indexes.py")
SHELL_PROGRAMS = ("runner.sh",)
"""What it puts into `box/` on the box, together with the modules that these import."""

_IMPORTED = re.compile(r"^from \.(\w*) import (.*)$", re.MULTILINE)


def render_compact(profile: Profile, source: Source) -> str:
    """Return the compact script, without comments and indentation.

    Raises UsageError if the profile needs a feature that it lacks.
    """
    needs_full(profile, COMPACT)
    steps = carried_steps(profile, LEFT_OUT_STEPS)
    library = [*own_parts(), *library_parts()]
    step_parts = [shell_part("steps", step.name) for step in steps]
    roots = [f"{verb}_{step.name}" for verb in ("inputs", "check", "apply") for step in steps]
    parts = reachable_shell([*library, *step_parts], ["main", "unpack_programs", *roots])
    named = set(re.findall(r"[A-Z_]+", "".join(parts)))
    mark = "door" if profile.secrets else ""
    every = variables(by_address(profile), source, steps, local=False, secrets_id=mark)
    values = [(name, _own(name, value, source)) for name, value in every if name in named]
    carried = Parts(parts[: len(library)], parts[len(library) :], files())
    return assemble_script(profile.name, values, carried, bare=True)


def own_parts() -> list[str]:
    """Return the parts that the full script over SSH doesn't have."""
    return [shell_part(folder, name) for folder, name in OWN_PARTS]


def library_parts() -> list[str]:
    """Return its parts of `templates/lib`, before they are reduced."""
    return [shell_part("lib", name) for name in LIBRARY if name not in LEFT_OUT_PARTS]


@cache
def files() -> tuple[tuple[str, str], ...]:
    """Return name and text of the files that it puts into `box/` on the box."""
    own = dict(box_files())
    names, waiting = set[str](), [*PROGRAMS]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += _imports(without_full(own[name]))
    python = without_unused({name: own[name] for name in sorted(names)})
    return (
        *((name, bare_python(text)) for name, text in python.items()),
        *((name, program(own[name])) for name in SHELL_PROGRAMS),
    )


def _imports(text: str) -> list[str]:
    """Return the files in the same folder that a program of the box imports."""
    found = []
    for module, names in _IMPORTED.findall(text):
        found += [f"{module}.py"] if module else [f"{name.strip()}.py" for name in names.split(",")]
    return found


def _own(name: str, value: Value, source: Source) -> Value:
    """Return a variable's value; only the keys and hashes it needs, since these don't compress."""
    if name == "EDITION":
        return "compact"
    if name == "UV_WHEELS":
        return [row for row in uv_release.rows() if row.startswith("Linux")]
    if name == "KNOWN_HOSTS":
        own = [line for line in known_hosts() if line.split()[0] in (source.url or "")]
        return [line for line in own if " ssh-ed25519 " in line] or own
    return value
