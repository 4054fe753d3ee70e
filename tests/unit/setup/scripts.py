"""Rendering for tests: a fixed commit, any profile, and the parts of the rendered script."""

from collections.abc import Sequence
from pathlib import Path

from bootstrap.paths import shipped
from bootstrap.profile import Profile
from bootstrap.profile.load import read_profile
from bootstrap.setup.program import program
from bootstrap.setup.script import Source, render_script, variables
from bootstrap.steps.plan import steps_for

WORK = Source(
    key="homework-01234567",
    name="homework",
    commit="0123456789abcdef0123456789abcdef01234567",
    snapshot="89abcdef0123456789abcdef0123456789abcdef",
    tree="fedcba9876543210fedcba9876543210fedcba98",
    branch="main",
    url="https://example.org/me/homework.git",
    user_name="Zoë O'Brien",
    user_email="zoe@example.org",
)
SHIPPED = sorted(path.stem for path in shipped("profiles").glob("*.yaml"))
TRAIN = "train.command=python train.py"


def profile(name: str, *sets: str) -> Profile:
    """Load a shipped profile, or one at a path, with a training command."""
    return read_profile(name, sets=(TRAIN, *sets)).profile


def render(what: Profile, *, local: bool = False, work: Source = WORK) -> str:
    """Return the script that sets up a box by this profile."""
    steps = steps_for(what, local=local)
    values = variables(what, work, local=local, secrets_id="")
    return render_script(what.name, values, steps, program().digest)


def shipped_script(name: str) -> str:
    """Return the script of a shipped profile."""
    return render(profile(name), local=name in {"local", "demo"})


def variables_part(script: str) -> str:
    """Return the recipe of the script, as bash reads it after the defaults."""
    _, begin, rest = script.partition("\nrecipe() {\n")
    recipe, end, _ = rest.rpartition("}\n\n# ---- the program ")
    assert begin
    assert end
    return recipe


def static_parts() -> Sequence[Path]:
    """Return every shell file that is shipped unchanged."""
    return sorted(shipped("templates").rglob("*.sh"))
