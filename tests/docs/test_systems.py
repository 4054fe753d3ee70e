"""docs/systems.md has a row for everything that code or guides name, and its tests are there."""

import re
from pathlib import Path

from bootstrap.fleet.export import EXPORTS
from bootstrap.providers import CLASSES
from bootstrap.setup.door_table import DOORS
from tools.docs.generate import ROOT

PAGE = (ROOT / "docs/systems.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| **")
]
GUIDES = (  # the names in guides for those who rent a GPU for the first time
    *("Vast.ai", "RunPod", "RunPod serverless", "Lambda", "Paperspace", "Gradient", "CoreWeave"),
    *("EC2", "SageMaker", "SageMaker Notebooks", "AWS Batch", "Fargate", "Hugging Face Jobs"),
    *("Google Cloud", "Google Colab", "Vertex AI", "Azure", "Azure ML Notebooks", "Azure Batch"),
    *("Azure Machine Learning", "Oracle", "IBM", "Kubernetes", "Docker", "Slurm", "local"),
    *("university", "Mac", "WSL", "spot"),
)


def test_each_row_of_the_systems_page_has_four_filled_cells() -> None:
    assert len(ROWS) >= 25
    assert [row for row in ROWS if len(row) != 4 or not all(row)] == []


def test_each_provider_each_start_up_script_and_each_guides_system_is_on_the_systems_page() -> None:
    for name in GUIDES:
        assert any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", row[0]) for row in ROWS), name
    for name in CLASSES:
        served = [row for row in ROWS if f"account `--provider {name}`" in row[1]]
        assert len(served) == 1, name
        assert "::test_" in served[0][3], name
    for name in (*DOORS, *EXPORTS, "oneliner"):
        assert any(re.search(rf"doors? [^,]*`{name}`|`, `{name}`", row[1]) for row in ROWS), name


def test_every_provider_and_start_up_script_that_the_systems_page_names_exists() -> None:
    doors = {*DOORS, *EXPORTS, "oneliner"}
    for row in ROWS:
        accounts = set(re.findall(r"`--provider ([a-z0-9-]+)`", row[1]))
        assert accounts <= set(CLASSES), row[0]
        named = set(re.findall(r"`([a-z0-9-]+)`", row[1]))
        assert named <= doors, row[0]


def test_each_row_of_the_systems_page_names_a_test_or_says_never_tried() -> None:
    for row in ROWS:
        shown = row[3]
        named = re.findall(r"`(\w[\w/]*\.py)(?:::(test_\w+))?`", shown)
        for file, test in named:
            text = (ROOT / "tests" / file).read_text(encoding="utf-8")
            assert not test or re.search(rf"^(?:async )?def {test}\(", text, re.MULTILINE), test
        assert named or "never tried" in shown or "checks" in shown, row[0]


def test_the_checks_workflow_runs_on_macos() -> None:
    """The one row whose proof is no test."""
    assert "macos-latest" in (ROOT / ".github/workflows/checks.yml").read_text(encoding="utf-8")
    assert Path(ROOT / "docs/support.md").is_file()
