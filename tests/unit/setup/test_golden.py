"""The recipe of each shipped profile, kept for review in tests/golden/recipes.

The first is whole; of each of the others stands there which of its lines differ from it. The
digest of the program is replaced by a placeholder. Update with
`pytest tests/unit/setup --update-golden`, and review the difference.
"""

import re
from difflib import unified_diff
from pathlib import Path

import pytest

from bootstrap.setup.program import program
from bootstrap.steps.plan import NAMES
from tests.unit.setup.scripts import SHIPPED, profile, render, shipped_script, variables_part

GOLDEN = Path(__file__).resolve().parents[2] / "golden/recipes"
FIRST = "ssh"
"""The profile of no provider."""


def recipe(name: str) -> str:
    return variables_part(shipped_script(name)).replace(program().digest, "(the program)")


def reviewable() -> str:
    """Return the recipes of all shipped profiles."""
    first = recipe(FIRST)
    parts = [f"==== {FIRST}\n{first}"]
    for name in (name for name in SHIPPED if name != FIRST):
        differs = list(unified_diff(first.splitlines(True), recipe(name).splitlines(True), n=0))
        changed = (line for line in differs[2:] if not line.startswith("@@"))
        parts.append(f"==== {name}\n{''.join(changed)}")
    return "".join(parts)


def test_shipped_profiles_setup_scripts_equal_their_reviewed_copy(
    request: pytest.FixtureRequest,
) -> None:
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(reviewable())
    assert reviewable() == GOLDEN.read_text(), "see the module's docstring"


def test_a_changed_profile_value_changes_a_single_line_of_the_setup_script() -> None:
    assert shipped_script("vast") == shipped_script("vast")
    many = ("prepare=[make data]", "lease.hours=1", "python.packages=[torch,numpy]", "shared=[x/]")
    first = render(profile("vast", *many, "env.A=1")).splitlines()
    other = render(profile("vast", *many, "env.A=2")).splitlines()
    assert len(first) <= 300
    assert [pair for pair in zip(first, other, strict=True) if len({*pair}) > 1] == [
        ("  ENV_VALUES=('1')", "  ENV_VALUES=('2')")
    ]


@pytest.mark.parametrize("name", ["local", "demo"])
def test_setup_scripts_for_local_and_demo_profiles_have_no_ssh_step(name: str) -> None:
    script = shipped_script(name)
    assert re.findall(r"^  step (\w+)$", script, re.MULTILINE) == [
        name for name in NAMES if name not in ("ssh", "smoke", "data", "prepare", "lease")
    ]
    assert "\n  IS_LOCAL='yes'\n" in script
    # tests/main_job/test_local.py checks what its step `shell` leaves alone.
