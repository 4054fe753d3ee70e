"""Requirements that a profile has besides files, in the script; nothing if it names none."""

from pathlib import Path

import pytest

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.python.environment import BoxEnvironment
from bootstrap.onbox.setup.recipe import Recipe
from bootstrap.setup.program import program_files
from bootstrap.setup.script import python_id
from tests.programs import captured
from tests.unit.setup.scripts import profile, render

pytestmark = pytest.mark.slow  # each starts programs

BESIDE = (
    "python.groups=[train]",
    'python.packages=["torch>=2.4"]',
    'python.no_build_isolation=["flash-attn>=2"]',
    "python.only_binary=[flash-attn]",
    'python.index=["https://example.org/whl"]',
    "python.as_of=2023-05-01",
)


def inputs(home: Path, *sets: str) -> str:
    """Return the inputs of the step python as in its stamp."""
    values = Recipe(render(profile("ssh", *sets)), program_files()["defaults.sh"]).values
    tree = BoxTree(str(home), "k", str(home))
    return BoxEnvironment(values, tree, str(home), f"{home}/.venv").inputs


@pytest.fixture(autouse=True)
def stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_newer_boxstrap_writes_the_same_environment_key_so_that_no_rebuild_follows(
    tmp_path: Path,
) -> None:
    """The same text as in earlier versions, so that the work stays the same."""
    assert inputs(tmp_path) == f"v1 {tmp_path}/.venv '' uv auto '' '' '' "


def test_python_reuse_never_added_to_a_profile_rebuilds_no_environment(tmp_path: Path) -> None:
    never = profile("ssh", "python.reuse=never")
    assert inputs(tmp_path, "python.reuse=never") == inputs(tmp_path)
    assert python_id(never.python) == python_id(profile("ssh").python)


def test_each_further_requirement_of_a_profile_makes_another_environment(tmp_path: Path) -> None:
    found = [inputs(tmp_path, *BESIDE[:count]) for count in range(len(BESIDE) + 1)]
    assert len(set(found)) == len(found)
    assert "flash-attn\\>=2" in found[-1]


@pytest.mark.parametrize("own", [True, False])
def test_a_plan_uses_the_programs_own_version_on_the_box_or_else_the_current_one(
    tmp_path: Path, *, own: bool
) -> None:
    program = tmp_path / ".boxstrap/box" / ("0" * 16 if own else "current")
    (program / "onbox").mkdir(parents=True)
    (program / "onbox/__main__.py").touch()
    script = render(profile("ssh", f"box.workdir={tmp_path}")).partition("# ---- the program")[0]
    asks = 'onbox() { echo "$ONBOX"; }; plan script'
    body = f"{script}}}\nrecipe\nPROGRAM={'0' * 64}\nbegin_box\n{asks}\n"
    done = captured(["bash"], input=body)
    assert done.stdout == f"{program}/onbox/__main__.py\n"
