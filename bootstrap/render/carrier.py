"""The full script with its carrier, for doors that are wide enough.

Over SSH this machine passes the secrets to the script and starts it. Behind a door
the carrier, a few lines in front of the script, asks for the secrets and starts it.
"""

from __future__ import annotations

from bootstrap import __version__
from bootstrap.plan import Step, steps_for
from bootstrap.profile.schema import Profile
from bootstrap.render.parts import functions, shell_part
from bootstrap.render.quote import Value, harmless
from bootstrap.render.script import render_script, render_text
from bootstrap.render.variables import Source, variables

TAKEN = (
    (
        "lib",
        "base",
        ("have", "expand_home", "read_text", "is_text", "write_file", "write_if_changed"),
    ),
    ("lib", "process", ("find_identity", "alive")),
    ("lib", "run_state", ("run_state", "in_state", "find_state")),
    ("lib", "git", ("box_git", "work_git", "with_token")),
    (
        "lib",
        "repository",
        ("find_repository", "is_rooted", "root_of", "has_folder", "is_taken", "placed_by_us"),
    ),
)
AT_BOOT = {"leave": "", "restart": "revive", "resume": "resume"}
"""What the script should do about a run that died with the box, by `train.at_boot`."""
MARKER = "END_OF_FULL_SCRIPT"


def render_carrier(
    profile: Profile,
    source: Source,
    *,
    leave: tuple[str, ...] = (),
    bare: bool = False,
) -> str:
    """Return a script that sets up the box it runs on.

    `leave`: steps to leave out. `bare`: without
    comments, docstrings and indentation, which are of no use in a packed script.
    """
    steps = carried_steps(profile, leave)
    mark = "door" if profile.secrets else ""
    values = variables(by_address(profile), source, steps, local=False, secrets_id=mark)
    script = render_script(profile.name, values, steps, bare=bare)
    at_boot = profile.train.at_boot if profile.train else "leave"
    own: list[tuple[str, Value]] = [
        ("WORKDIR", profile.box.workdir),
        ("REPO_KEY", source.key),
        ("REPO_ROOT", source.root),
        ("REPO_NAME", source.name),
        ("REPO_COMMIT", source.commit),
        ("REPO_URL", (source.url or "") if "repo" not in leave else ""),
        ("SECRETS", profile.secrets),
        ("WORDS", AT_BOOT[at_boot]),
        ("WAIT", False),
    ]
    parts = [
        shell_part("doors", "carrier"),
        shell_part("doors", "terminal"),
        shell_part("doors", "access"),
        *(functions(*taken) for taken in TAKEN),
    ]
    return render_text(
        "doors/carrier.sh.j2",
        {
            "version": __version__,
            "profile_name": harmless(profile.name),
            "variables": own,
            "parts": parts,
            "script": script,
            "marker": _marker(script),
        },
    )


def _marker(script: str) -> str:
    """Return an end marker that is not a line of the script."""
    marker, lines = MARKER, set(script.splitlines())
    while marker in lines:
        marker += "_"
    return marker


def by_address(profile: Profile) -> Profile:
    """Return the profile for a door: the box fetches the commit itself."""
    return profile.replace(git=profile.git.replace(access="url"))


def carried_steps(profile: Profile, leave: tuple[str, ...]) -> tuple[Step, ...]:
    """Return the steps of a profile, without those in `leave`."""
    train = profile.train is not None
    smoke = profile.gpu.require and profile.gpu.smoke != "none"
    steps = steps_for(
        local=False,
        train=train,
        smoke=smoke,
        data=bool(profile.data),
        prepare=bool(profile.prepare),
        lease=profile.lease is not None,
    )
    return tuple(step for step in steps if step.name not in leave)
