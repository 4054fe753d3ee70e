"""Which Python an environment gets where nobody names one: the one that its projects accept."""

from pathlib import Path

import pytest

from bootstrap.onbox.python.accepted import accepted

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
def test_setup_reads_the_accepted_python_versions_from_pyproject_setup_py_or_setup_cfg(
    tmp_path: Path, text: str, range_: str
) -> None:
    name = "setup.py" if text.startswith("setup(") else "pyproject.toml"
    (tmp_path / ("setup.cfg" if text.startswith("[options]") else name)).write_text(text)
    assert accepted(str(tmp_path)) == range_
