"""The step `tools` on a box on which nothing can be installed."""

import json
from pathlib import Path

from bootstrap.onbox.steps.step import SetupFacts
from bootstrap.onbox.steps.tools import ToolsStep


def test_a_setup_without_packages_is_right_after_one_whose_packages_could_not_be_installed(
    tmp_path: Path,
) -> None:
    (tmp_path / "steps").mkdir()
    is_right = []
    for name, packages in (("one", ["jq"]), ("two", ["jq"]), ("three", [])):
        facts = {"home": str(tmp_path), "setup": str(tmp_path / name), "is_local": "yes"}
        facts["values"] = json.dumps({"packages": packages})
        step = ToolsStep(SetupFacts({key: [text] for key, text in facts.items()}))
        is_right.append(step.check())
        step.apply()
        assert step.check()
    assert is_right == [True, False, False]
