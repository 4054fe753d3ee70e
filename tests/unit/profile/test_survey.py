"""What is read from a repository's files: each kind, and broken or hostile ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap.profile.load import read_profile
from bootstrap.profile.scaffold import notes, write_profile
from bootstrap.profile.survey import declared, files, scripts
from bootstrap.profile.survey.facts import inspect_repository, look_where_you_stand

LEARNS = "import torch\nif __name__ == '__main__':\n    optimizer = 1\n"


def written(root: Path, **files: str):
    """Return the profile of a repository with these files; `a__b_py` is a/b.py."""
    for name, text in {"train_py": LEARNS, **files}.items():
        path = root / f".{name.replace('__', '/')}".replace("_", ".").lstrip(".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (root / "boxstrap.yaml").write_text(write_profile(inspect_repository(root)), encoding="utf-8")
    return read_profile(None, repo_root=root).profile


POETRY = """
[tool.poetry]
package-mode = false
[tool.poetry.dependencies]
python = "^3.10"
torch = "^2.1"
einx = {version = "~0.3", extras = ["all"]}
ftfy = {version = "*", optional = true}
[tool.poetry.group.train.dependencies]
timm = "1.0.3"
mine = {git = "https://github.com/a/mine.git", tag = "v1"}
[tool.poetry.group.dev.dependencies]
pytest = "*"
[build-system]
requires = ["poetry-core"]
"""


def test_init_takes_poetrys_dependencies_of_a_project_without_a_package(here: Path) -> None:
    python = written(here, pyproject_toml=POETRY).python
    assert python.requirements == []
    assert python.packages == [
        "torch>=2.1,<3",
        "einx[all]>=0.3,<0.4",
        "timm==1.0.3",
        "mine @ git+https://github.com/a/mine.git@v1",
    ]


@pytest.mark.parametrize("project", ["", "[project]\nname='x'\nversion='1'\n"])
def test_init_takes_dependency_groups_where_the_project_has_no_dependencies(
    here: Path, project: str
) -> None:
    text = project + "[dependency-groups]\ntrain = ['torch', 'einx']\ndev = ['pytest']\n"
    python = written(here, pyproject_toml=text).python
    assert (python.groups, python.packages) == (["train"], [])
    assert python.requirements == (None if project else [])


def test_init_in_a_subfolder_of_a_repository_writes_that_folders_training(here: Path) -> None:
    folder = here / "projects/cats"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(LEARNS + "out_dir = 'runs'\n")
    (folder / "requirements.txt").write_text("torch\n")
    (here / "requirements.txt").write_text("numpy\n")
    facts = look_where_you_stand(here, folder)
    (here / "boxstrap.yaml").write_text(write_profile(facts))
    found = read_profile(None, repo_root=here).profile
    assert found.python.requirements == ["projects/cats/requirements.txt"]
    assert found.train
    assert found.train.command == "cd projects/cats && python train.py"
    assert found.train.results == ["projects/cats/runs/"]
    assert any("taken from projects/cats/" in each for each in notes(facts))
    # A folder that shows nothing is no reason to find nothing.
    (here / "docs").mkdir()
    assert look_where_you_stand(here, here / "docs") == inspect_repository(here)


def readme(*lines: str) -> str:
    return "```sh\n" + "\n".join(lines) + "\n```\n"


@pytest.mark.parametrize(
    ("files", "requirements", "packages"),
    [
        ({"requirements_txt": "-r more.txt\n", "more_txt": "torch\n"}, ["requirements.txt"], []),
        ({"requirements_txt": "git+https://github.com/a/torch.git\n"}, ["requirements.txt"], []),
        ({"requirements_txt": "numpy\n"}, ["requirements.txt"], ["torch"]),
        ({"deps__requirements_txt": "torch"}, ["deps/requirements.txt"], []),
        (
            {"requirements__base_txt": "torch", "requirements__dev_txt": "pytest"},
            ["requirements/base.txt"],
            [],
        ),
        (
            {"a__requirements_txt": "x", "b__requirements_txt": "torch"}
            | {"README_md": readme("cd b", "pip install -r b/requirements.txt")},
            ["b/requirements.txt"],
            [],
        ),
        ({"Pipfile": '[packages]\ntorch = ">=2"\nlion = "*"\n'}, [], ["torch>=2", "lion"]),
        (
            {"setup_py": "import os\nNEED = ['torch']\nos.exit()\nsetup(install_requires=NEED)\n"},
            [],
            ["torch"],
        ),
        (
            {"environment_yml": "dependencies: [pytorch=2.1, numpy=1.26=py_0, {pip: [einx==0.3]}]"},
            [],
            ["torch==2.1.*", "numpy==1.26.*", "einx==0.3"],
        ),
        ({"README_md": "Then `pip install torch einx`, and go.\n"}, [], ["torch", "einx"]),
        ({"README_md": readme("pip install -U pip", "!pip3 install torch")}, [], ["torch"]),
        ({"README_md": readme("pip install torch ; rm x", "pip install $X")}, [], ["torch"]),
        (
            {"README_md": readme("pip install git+https://github.com/a/peft.git@v1 torch")},
            [],
            ["peft @ git+https://github.com/a/peft.git@v1", "torch"],
        ),
        ({"pyproject_toml": "[project]\nname='x'\ndependencies=['torch']\n"}, None, []),
        ({"pyproject_toml": "[tool.black]\n"}, [], ["torch"]),
    ],
)
def test_init_takes_requirements_and_packages_from_the_repositorys_own_files(
    here: Path, files: dict[str, str], requirements: list[str] | None, packages: list[str]
) -> None:
    python = written(here, **files).python
    assert (python.requirements, python.packages) == (requirements, packages)


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"environment_yml": "dependencies: [python=3.10, pytorch]"}, "3.10"),
        ({"environment_yml": "dependencies: [python>=3.8, pytorch]"}, None),
        ({"pyproject_toml": "[project]\nname='x'\nrequires-python='==3.11.*'\n"}, "3.11"),
        ({"pyproject_toml": "[project]\nname='x'\nrequires-python='>=3.10'\n"}, None),
        ({"requirements_txt": "torch==2.0.1\n"}, "3.10"),
        ({"requirements_txt": "torch<2.3\n"}, "3.11"),
        ({"requirements_txt": "torch<=2\n"}, "3.10"),
        ({"requirements_txt": "torch~=2.1.0\n"}, "3.10"),
        ({"requirements_txt": "torch==2.*\n"}, None),
        ({"requirements_txt": "torch>=2.0\n"}, None),
    ],
)
def test_init_takes_the_python_version_from_the_repositorys_own_files(
    here: Path, files: dict[str, str], version: str | None
) -> None:
    assert written(here, **files).python.version == version


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("python3 train.py a.yaml", "python train.py a.yaml"),
        ("$ CUDA_VISIBLE_DEVICES=0,1 python train.py --lr 1 &", "python train.py --lr 1"),
        ("torchrun --nproc_per_node 8 train.py", "torchrun --nproc_per_node=gpu train.py"),
        ("python -m torch.distributed.launch --nproc_per_node=4 train.py", "torchrun --nproc_per"),
        ("python train.py | tee log", "python train.py"),
        ("python ../train.py", "python train.py"),
        ('python train.py "', "python train.py"),
    ],
)
def test_init_makes_a_readme_command_fit_any_box(here: Path, line: str, command: str) -> None:
    found = written(here, README_md=readme(line)).train.command
    assert found.startswith(command) if command.endswith("_per") else found == command


@pytest.mark.parametrize(
    ("project", "command"),
    [
        ("", "texts-train --config a.yaml"),
        ("[build-system]", None),  # nothing installs it
        ("texts.cli", None),
    ],
    ids=["installed", "not installed", "no such module"],
)
def test_init_takes_a_project_script_as_training_only_if_the_project_installs_it(
    here: Path, project: str, command: str | None
) -> None:
    text = (
        "[project]\nname = 'texts'\nversion = '1'\n"
        "[project.scripts]\ntexts-train = 'texts.cli:main'\n"
        "[build-system]\nrequires = ['hatchling']\n"
    )
    page = "# Texts\n\n    uv sync\n    uv run texts-train --config a.yaml\n"
    (here / "src/texts").mkdir(parents=True)
    for name in ("__init__", "cli"):
        (here / f"src/texts/{name}.py").write_text("import torch\n")
    (here / "pyproject.toml").write_text(
        text.replace(project or "\0", "[x]" if "[" in project else "y.z")
    )
    (here / "README.md").write_text(page)
    found = inspect_repository(here).command
    assert (found.value if found else None) == command


def test_init_reads_a_yaml_file_with_a_here_document_or_a_merge_key(tmp_path: Path) -> None:
    file = tmp_path / "environment.yml"
    file.write_text("run: |\n  cat <<EOF\nbase: &base {a: 1}\nmore: {<<: *base, b: 2}\n")
    read = files.yaml(file)
    assert (read["run"], read["more"]) == ("cat <<EOF\n", {"<<": {"a": 1}, "b": 2})


def test_init_takes_an_output_options_default_as_results_only_if_a_folder(here: Path) -> None:
    option = "import argparse\np.add_argument('--out', type=str, default={})\n"
    folders = (("'models/'", ["models/"]), ("'output'", ["output/"]), ("'model.pt'", []))
    for default, results in folders:
        text = LEARNS + option.format(default)
        assert written(here, train_py=text).train.results == results


def test_imports_that_may_fail_or_are_only_for_types_are_not_counted_as_needed(here: Path) -> None:
    (here / "train.py").write_text(
        "try:\n    import wandb\nexcept ImportError:\n    wandb = None\n"
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas\n"
        "def main():\n    import torch\n    from .beside import x\n"
    )
    (here / "beside.py").write_text("import numpy\ndef later():\n    import scipy\n")
    (here / "numpy.txt").write_text("")
    found = scripts.imported(here, "train.py")
    assert found.packages == {"torch": "train.py", "numpy": "beside.py"}
    assert found.unknown == {}


def test_a_folder_of_outputs_named_like_a_package_does_not_hide_the_import(here: Path) -> None:
    (here / "wandb").mkdir()
    (here / "train.py").write_text("import wandb\nimport einx\n")
    (here / "einx").mkdir()
    found = scripts.imported(here, "train.py")
    assert (found.packages, found.unknown) == ({"wandb": "train.py"}, {})


LONG = "x" * 300  # no file can be called so
BROKEN = {
    "pyproject.toml": "[project\nname = ",
    "Pipfile": "= = =",
    "setup.py": "def (:\n",
    "setup.cfg": "no section\n",
    "environment.yml": "dependencies: [" * 300,
    "uv.lock": "\0" * 100,
    "README.md": "```\npython 'train.py\npip install \"\n" + "`" * 4000 + "\n\\",
    "README.rst": f"::\n\n    cd {LONG}\n    bash {LONG}.sh\n    python {LONG} -c {LONG}\n",
    "docs/README.md": f"```\npip install -r {LONG}.txt\npython train.py -c {LONG}\n```\n",
    "train_gpt.py": f"import {LONG}\nfrom {LONG}.{LONG} import a\n",
    "train.py": "(" * 5000 + "\nimport torch\n",
    "train_deep.py": "def f():\n    x" + ".a()" * 450 + "\n    init_process_group()\nf()\n",
    "train_long.py": "import torch\n" + "save(" * 100_000,
    "INSTALL.md": "# " + "a " * 100_000 + "data\n" + "```py\n" * 20_000,
    "README.txt": "git clone " + "a/" * 100_000 + "(\n",
    "notebook.ipynb": "{" * 3000,
    "long.ipynb": f'{{"cells": [{{"cell_type": "code", "source": ["import {LONG}"]}}]}}',
    "requirements/base.txt": "-r base.txt\n-r ../../../etc/passwd\n-r /etc/passwd\n",
    "run.sh": "\x1b[31m python train.py $(id) \\\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_init_writes_a_valid_profile_despite_a_broken_file(here: Path, name: str) -> None:
    path = here / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(BROKEN[name], encoding="utf-8")
    text = write_profile(inspect_repository(here))
    (here / "boxstrap.yaml").write_text(text, encoding="utf-8")
    assert read_profile(None, repo_root=here).profile.version == 1
    assert "\x1b" not in text
    assert "root:" not in text


def test_files_outside_the_repository_are_not_among_its_files(here: Path) -> None:
    (here.parent / "theirs.yaml").write_text("output_dir: of-another\n")
    (here / "own.yaml").write_text("output_dir: own\n")
    outside = ("../theirs.yaml", str(here.parent / "theirs.yaml"), "/etc/passwd", LONG)
    assert [name for name in ("own.yaml", *outside) if files.has(here, name)] == ["own.yaml"]


def test_a_requirements_file_is_read_together_with_the_files_it_includes(here: Path) -> None:
    (here / "a").mkdir()
    (here / "a/r.txt").write_text("-r ../b.txt\n-r c.txt\nx==1 # why\n--index-url https://h\n")
    (here / "a/c.txt").write_text("y[z]>=2; python_version > '3'\n")
    found = declared.with_includes(here, "a/r.txt")
    assert declared.names(found.requirements) == {"x", "y"}


@pytest.mark.parametrize(
    ("asked", "example"), [(">=3.8,<3.11", "3.10"), (">=3.12", "3.12"), ("", "3.11")]
)
def test_the_example_python_version_that_init_writes_is_one_the_project_accepts(
    here: Path, asked: str, example: str
) -> None:
    requires = f"requires-python = '{asked}'\n" if asked else ""
    (here / "pyproject.toml").write_text("[project]\nname = 'x'\n" + requires)
    assert f'# version: "{example}"' in write_profile(inspect_repository(here))
