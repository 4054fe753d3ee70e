"""Rendering for tests: a fixed commit, any profile, and the parts of the rendered script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bootstrap.paths import shipped
from bootstrap.plan import steps_for
from bootstrap.profile.load import read_profile
from bootstrap.profile.schema import Profile
from bootstrap.render.script import Source, render_script, variables

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
    return render_script(what.name, variables(what, work, steps, local=local, secrets_id=""), steps)


def shipped_script(name: str) -> str:
    """Return the script of a shipped profile."""
    return render(profile(name), local=name in {"local", "demo"})


def variables_part(script: str) -> str:
    """Return the text between the opening brace and the library."""
    _, _, rest = script.partition("\n{\n")
    head, library, _ = rest.partition("# ---- library ")
    assert library
    return head


def static_parts() -> Sequence[Path]:
    """Return every shell file that is shipped unchanged."""
    return sorted(shipped("templates").rglob("*.sh"))
