"""Which Python an environment gets where nobody names one: the one that its projects accept."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from bootstrap.onbox.python.accepted import accepted
from bootstrap.steps.shell import shell_part
from tests.plain_environment import HERE
from tests.unit.onbox.test_trees import Trees

STATED = {
    "pyproject.toml": ("[project]\nname = 'x'\nrequires-python = '>=3.8,<3.11'\n", ">=3.8,<3.11"),
    "another table's": ("[tool.x]\nrequires-python = '>=3.8'\n[project]\nname = 'x'\n", ""),
    "after a list": (
        '[project]\nclassifiers = [\n  "A :: B",\n]\nrequires-python = "~=3.9"\n', "~=3.9"
    ),
    "poetry": ("[tool.poetry.dependencies]\npython = '^3.9'\n", ">=3.9,<4"),
    "poetry's narrow": ("[tool.poetry.dependencies]\npython = \"~3.9\"\n", ">=3.9,<3.10"),
    "poetry's choice": ("[tool.poetry.dependencies]\npython = '3.8 || 3.9'\n", ""),
    "setup.cfg": ("[options]\npython_requires = >=3.7, <3.11\n", ">=3.7,<3.11"),
    "setup.py": ("setup(\n    python_requires='>=3.7',\n)\n", ">=3.7"),
    "nothing": ("[build-system]\nrequires = ['setuptools']\n", ""),
}  # fmt: skip


@pytest.mark.parametrize(("text", "range_"), STATED.values(), ids=STATED)
def test_the_python_range_of_a_project_file_is_read(tmp_path: Path, text: str, range_: str) -> None:
    name = "setup.py" if text.startswith("setup(") else "pyproject.toml"
    (tmp_path / ("setup.cfg" if text.startswith("[options]") else name)).write_text(text)
    assert accepted(str(tmp_path)) == range_


@pytest.mark.slow
@pytest.mark.parametrize(
    ("profile", "asked"), [("", ">=3.8,<3.11,>=3.9"), ("3.10", "3.10")], ids=["none", "named"]
)
def test_setup_picks_a_python_that_all_local_projects_allow_unless_the_profile_names_one(
    tmp_path: Path, profile: str, asked: str
) -> None:
    trees = Trees(tmp_path)
    for folder, range_ in ((trees.main, ">=3.8,<3.11"), (trees.main / "libs/own", ">=3.9")):
        folder.mkdir(exist_ok=True, parents=True)
        (folder / "pyproject.toml").write_text(f"[project]\nrequires-python = '{range_}'\n")
    (trees.main / "requirements.txt").write_text("-e .\n-e libs/own\n")
    (trees.home / "agent/bin").mkdir(parents=True)
    (trees.home / "agent/bin/python").symlink_to(sys.executable)
    onbox = shlex.quote(str(HERE / "bootstrap/onbox/__main__.py"))
    stub = 'run_uv() { printf "%s\\n" "$*" >&2; case $2 in install) ;; *) return 1 ;; esac; }'
    said = trees.ask(
        f"{shell_part('lib', 'uv')}\n{stub}; ONBOX={onbox} PYTHON_VERSION={profile} UV_SETTINGS=()"
        f' SETUP_DIR=/nonexistent; with_retries() {{ "$@"; }}; cd "$REPO_DIR"; find_sources;'
        " ACCEPTED=$STATED; find_python || :",
        check=False,
    )
    assert f"python install --no-bin {asked}\n" in said
