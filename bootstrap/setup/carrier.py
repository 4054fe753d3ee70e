"""The script behind a door: the recipe of a box, and the program that carries it out.

Over SSH this machine passes the secrets to the script and starts it. Behind a door the carrier
(`templates/doors/carrier.sh`), a part of the program, asks for the secrets and starts it.

The program is the same as over SSH. A wide door has both in one text (`render_carrier`). Through a
narrow one goes the recipe, and the box fetches the program from the git host of its commit
(`render_fetching`), where `bootstrap/repo/program_ref.py` put it; it runs only if its SHA-256 is
the one that the recipe names.
"""

from __future__ import annotations

from bootstrap import __version__
from bootstrap.profile.schema import Profile
from bootstrap.setup.program import packed_program, program
from bootstrap.setup.script import Source, render_recipe, render_text, variables
from bootstrap.steps.plan import steps_for
from bootstrap.steps.shell import Value, bare_shell, functions, harmless, shell_part


def render_carrier(
    profile: Profile, source: Source, *, leave: tuple[str, ...] = (), bare: bool = False
) -> str:
    """Return a script that sets up the box it runs on, but for the steps to `leave`. `bare`: its
    program is without comments, docstrings and indentation."""
    used = {name for name, value in door_values(profile, source) if value}
    made = packed_program(used) if bare else program()
    recipe = door_recipe(profile, source, leave, made.digest)
    return _whole(profile, recipe, program=made.text, program_marker=_marker(made.text))


def render_fetching(
    profile: Profile, source: Source, ref: str, *, leave: tuple[str, ...] = ()
) -> str:
    """Return a script that fetches the program from `ref` of the commit's own repository."""
    return _whole(
        profile,
        door_recipe(profile, source, leave, program().digest),
        fetched=[("PROGRAM_URL", source.url or ""), ("PROGRAM_REF", ref)],
        fetch=bare_shell(shell_part("doors", "fetch")),
    )


def door_recipe(profile: Profile, source: Source, leave: tuple[str, ...], digest: str) -> str:
    steps = tuple(step for step in steps_for(profile, local=False) if step.name not in leave)
    return render_recipe(profile.name, door_values(profile, source), steps, digest)


def door_values(profile: Profile, source: Source) -> list[tuple[str, Value]]:
    """Return the variables for a door: the box fetches the commit itself."""
    profile = profile.replace(git=profile.git.replace(access="url"))
    secrets_id = "door" if profile.secrets else ""
    return variables(profile, source, local=False, secrets_id=secrets_id)


def _whole(profile: Profile, recipe: str, **rest: object) -> str:
    """Return the script that a door gets: the recipe, and the program or what fetches it."""
    loads = functions("lib", "program", ("read_program", "load_program_files"))
    return render_text(
        "doors/carrier.sh.j2",
        {
            "version": __version__,
            "profile_name": harmless(profile.name),
            "recipe": recipe,
            "marker": _marker(recipe),
            "loads": bare_shell(loads),
            **{"program": "", "fetched": [], "fetch": "", **rest},
        },
    )


def _marker(text: str) -> str:
    """Return an end marker that is not a line of the text."""
    marker, lines = "END_OF_SCRIPT", set(text.splitlines())
    while marker in lines:
        marker += "_"
    return marker
