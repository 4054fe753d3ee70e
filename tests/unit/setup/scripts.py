"""Rendering for tests: a fixed commit, any profile, and the parts of the rendered script."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.setup.recipe import Recipe
from bootstrap.onbox.steps.step import SetupFacts
from bootstrap.onbox.values import Values
from bootstrap.paths import shipped
from bootstrap.profile import Profile
from bootstrap.profile.load import read_profile
from bootstrap.setup.program import program, program_files
from bootstrap.setup.script import Source, render_script, variables
from bootstrap.steps.plan import steps_for
from bootstrap.steps.shell import Value

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


def values_of(**own: Value) -> Values:
    """Return what a recipe says with these values, by their names in small letters."""
    own = {name.upper(): value for name, value in own.items()}
    script = render_script("x", {"": own}, (), "")
    return Recipe(script, program_files()["defaults.sh"]).values


def facts(tree: BoxTree, *steps: str, asked: Mapping[str, str] = {}, **own: Value) -> SetupFacts:
    """Return what the steps of a setup are told that asks for these words and has these values."""
    return SetupFacts(tree, values_of(**own), asked, steps)


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
