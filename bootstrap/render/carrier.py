"""The script behind a door: what the box should become, and the program that does it.

Over SSH this machine passes the secrets to the script and starts it. Behind a door the carrier
(`templates/doors/carrier.sh`), a few lines in front of it, asks for the secrets and starts it.

The two are apart: the values are a few lines, the program is the same for everybody who has this
version. A wide door has both in one text (`render_carrier`). Through a narrow one go the values,
and the box fetches the program from the git host of its commit (`render_fetching`), where
`bootstrap/repo/program_ref.py` put it; it runs only if its SHA-256 is the one rendered here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from bootstrap import __version__
from bootstrap.plan import NAMES, STEPS, Step, steps_for
from bootstrap.profile.schema import Profile
from bootstrap.render.script import (
    NO_SOURCE,
    Source,
    assemble_script,
    render_text,
    script_parts,
    variables,
)
from bootstrap.shell import Value, bare_shell, functions, harmless, quote, shell_part

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


TAKEN = (
    (
        "lib",
        "base",
        (
            *("have", "reset_shell", "expand_home", "read_text", "is_text"),
            *("write_file", "write_if_changed"),
        ),
    ),
    ("lib", "process", ("read_stat", "find_identity", "alive")),
    ("lib", "run_state", ("run_state", "in_state", "find_state")),
    ("lib", "git", ("box_git", "work_git", "with_token")),
    (
        "lib",
        "repository",
        ("find_repository", "is_rooted", "root_of", "has_folder", "is_taken", "placed_by_us"),
    ),
)
_PLACE = "VALUES_GO_HERE"
_DECIDING = ("RESULTS_TO", "CONDA", "TRAIN_NODES")
"""Variables by which parts of the script are left out."""


def render_carrier(
    profile: Profile,
    source: Source,
    *,
    leave: tuple[str, ...] = (),
    bare: bool = False,
) -> str:
    """Return a script that sets up the box it runs on.

    `leave`: steps to leave out. `bare`: without comments, docstrings and indentation, which are of
    no use in a packed script.
    """
    values = own_values(profile, source, leave)
    used = {step.name for step in carried_steps(profile, leave)}
    used.update(name for name, value in values if value)
    return _whole(profile, values, program=_program(carried_steps(profile, leave), used, bare=bare))


def render_fetching(
    profile: Profile, source: Source, ref: str, *, leave: tuple[str, ...] = ()
) -> str:
    """Return a script that fetches the program from `ref` of the commit's own repository."""
    fetched: list[tuple[str, Value]] = [
        ("PROGRAM_URL", source.url or ""),
        ("PROGRAM_REF", ref),
        ("PROGRAM_SUM", hashlib.sha256(program().encode()).hexdigest()),
    ]
    return _whole(
        profile,
        own_values(profile, source, leave),
        fetched=fetched,
        parts=[bare_shell(shell_part("doors", "fetch"))],
    )


@cache
def program() -> str:
    """Return the program that is the same for everybody who has this version."""
    return _program(STEPS, {*NAMES, *_DECIDING})


def own_values(profile: Profile, source: Source, leave: tuple[str, ...]) -> list[tuple[str, Value]]:
    """Return the variables of a profile that differ from `_defaults`."""
    mark = "door" if profile.secrets else ""
    steps, usual = carried_steps(profile, leave), dict(_defaults())
    every = variables(by_address(profile), source, steps, local=False, secrets_id=mark)
    return [(name, value) for name, value in every if usual[name] != value]


@cache
def _defaults() -> tuple[tuple[str, Value], ...]:
    """Return each variable as the plainest profile has it."""
    return tuple(variables(Profile(name="plain"), NO_SOURCE, STEPS, local=False, secrets_id=""))


def _program(steps: Sequence[Step], used: Collection[str], *, bare: bool = False) -> str:
    """Return the carrier, with the script in it, for values that stand before it."""
    made = script_parts(steps, used, bare=bare)
    script = assemble_script("as below", [(_PLACE, True)], made, bare=bare)
    head, rest = script.split(f"{_PLACE}='yes'\n")
    defaults = _assigned(_defaults())
    parts = [shell_part("doors", name) for name in ("carrier", "terminal", "access")]
    parts += [functions(*taken) for taken in TAKEN]
    return render_text(
        "doors/program.sh.j2",
        {
            "version": __version__,
            "parts": [bare_shell(part) for part in parts] if bare else parts,
            "head": head,
            "defaults": defaults,
            "rest": rest,
            "marker": _marker(script + defaults),
        },
        bare=bare,
    )


def _whole(profile: Profile, values: Sequence[tuple[str, Value]], **rest: object) -> str:
    """Return the script that a door gets: the values, and the program or what fetches it."""
    assigned = _assigned(values)
    return render_text(
        "doors/carrier.sh.j2",
        {
            "version": __version__,
            "profile_name": harmless(profile.name),
            "values": assigned,
            "marker": _marker(assigned),
            **{"program": "", "fetched": [], "parts": [], **rest},
        },
    )


def _assigned(values: Iterable[tuple[str, Value]]) -> str:
    return "".join(
        f"{'declare -A ' * isinstance(value, Mapping)}{name}={quote(value)}\n"
        for name, value in values
    )


def _marker(text: str) -> str:
    """Return an end marker that is not a line of the text."""
    marker, lines = "END_OF_SCRIPT", set(text.splitlines())
    while marker in lines:
        marker += "_"
    return marker


def by_address(profile: Profile) -> Profile:
    """Return the profile for a door: the box fetches the commit itself."""
    return profile.replace(git=profile.git.replace(access="url"))


def carried_steps(profile: Profile, leave: tuple[str, ...]) -> tuple[Step, ...]:
    """Return the steps of a profile, without those in `leave`."""
    return tuple(step for step in steps_for(profile, local=False) if step.name not in leave)
