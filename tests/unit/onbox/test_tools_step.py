"""The step `tools` on a box on which nothing can be installed."""

from pathlib import Path

from bootstrap.onbox.git import BoxTree
from bootstrap.onbox.steps.tools import ToolsStep
from tests.unit.setup.scripts import facts


def test_a_setup_without_packages_is_right_after_one_whose_packages_could_not_be_installed(
    tmp_path: Path,
) -> None:
    (tmp_path / "steps").mkdir()
    is_right = []
    for name, packages in (("one", ["jq"]), ("two", ["jq"]), ("three", [])):
        asked = {"setup": str(tmp_path / name)}
        tree = BoxTree(str(tmp_path), "k", "")
        step = ToolsStep(facts(tree, asked=asked, is_local=True, packages=packages))
        is_right.append(step.check())
        step.apply()
        assert step.check()
    assert is_right == [True, False, False]
