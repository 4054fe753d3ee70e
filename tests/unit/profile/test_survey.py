"""What is read from a repository's files: each kind, and broken or hostile ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from bootstrap.profile.load import read_profile
from bootstrap.profile.scaffold import (
    inspect_repository,
    look_where_you_stand,
    notes,
    write_profile,
)
from bootstrap.profile.survey import commands, declared, files, scripts

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


def test_poetry_without_a_package_gives_its_dependencies(here: Path) -> None:
    python = written(here, pyproject_toml=POETRY).python
    assert python.requirements == []
    assert python.packages == [
        "torch>=2.1,<3",
        "einx[all]>=0.3,<0.4",
        "timm==1.0.3",
        "mine @ git+https://github.com/a/mine.git@v1",
    ]


@pytest.mark.parametrize("project", ["", "[project]\nname='x'\nversion='1'\n"])
def test_dependency_groups_are_taken_where_the_project_has_no_dependencies(
    here: Path, project: str
) -> None:
    text = project + "[dependency-groups]\ntrain = ['torch', 'einx']\ndev = ['pytest']\n"
    python = written(here, pyproject_toml=text).python
    assert (python.groups, python.packages) == (["train"], [])
    assert python.requirements == (None if project else [])


CV2 = "import cv2\n" + LEARNS


@pytest.mark.parametrize(
    "named",
    ["opencv-python-headless", "-e git+https://github.com/a/opencv-python.git#egg=opencv_python"],
)
def test_another_distribution_of_a_module_is_not_added(here: Path, named: str) -> None:
    python = written(here, requirements_txt=f"torch\n{named}\n", train_py=CV2).python
    assert python.packages == []


def test_what_may_be_brought_by_an_address_is_left_to_the_user(here: Path) -> None:
    files = {"requirements_txt": "torch\ngit+https://github.com/a/vision-kit\n", "train_py": CV2}
    assert written(here, **files).python.packages == []
    (remark,) = [each for each in notes(inspect_repository(here)) if "may bring" in each]
    assert "opencv-python" in remark


def test_init_starts_from_where_the_user_stands(here: Path) -> None:
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
        ({"requirements_txt": "torch\n"}, ["requirements.txt"], []),
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
        ({"setup_cfg": "[options]\ninstall_requires =\n  torch\n  einx\n"}, [], ["torch", "einx"]),
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
def test_what_is_installed(
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
        ({"requirements_txt": "torch>=2.0\n"}, None),
    ],
)
def test_the_version_of_python(here: Path, files: dict[str, str], version: str | None) -> None:
    assert written(here, **files).python.version == version


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("python3 train.py a.yaml", "python train.py a.yaml"),
        ("$ CUDA_VISIBLE_DEVICES=0,1 python train.py --lr 1 &", "python train.py --lr 1"),
        ("torchrun --nproc_per_node 8 train.py", "torchrun --nproc_per_node=gpu train.py"),
        ("python -m torch.distributed.launch --nproc_per_node=4 train.py", "torchrun --nproc_per"),
        ("accelerate launch --multi_gpu --num_processes 2 train.py", "accelerate launch train.py"),
        ("uv run --extra gpu train.py -x", "python train.py -x"),
        ("python train.py | tee log", "python train.py"),
        ("torchrun --nnodes=4 --node_rank=0 train.py", "python train.py"),
        ("python ../train.py", "python train.py"),
        ('python train.py "', "python train.py"),
        ("python train.py --data <path>", "python train.py --data '<path>'"),
    ],
)
def test_the_command_of_a_page_for_any_box(here: Path, line: str, command: str) -> None:
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
def test_a_command_that_the_project_installs(here: Path, project: str, command: str | None) -> None:
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


def test_a_yaml_file_with_a_here_document_or_a_merge_is_read(tmp_path: Path) -> None:
    file = tmp_path / "environment.yml"
    file.write_text("run: |\n  cat <<EOF\nbase: &base {a: 1}\nmore: {<<: *base, b: 2}\n")
    read = files.yaml(file)
    assert (read["run"], read["more"]) == ("cat <<EOF\n", {"<<": {"a": 1}, "b": 2})


def test_a_script_in_a_folder_that_is_entered_first(here: Path) -> None:
    page = readme("git clone https://x/y", "cd y", "cd ml", "python train.py --a")
    written(here, README_md=page)
    assert [run.text for run in commands.read_commands(here).runs] == ["python train.py --a"]
    (here / "ml").mkdir()
    (here / "ml/train.py").write_text(LEARNS)
    assert [run.text for run in commands.read_commands(here).runs] == [
        "cd ml && python train.py --a"
    ]


def test_the_default_of_an_option_for_output_is_a_folder_of_results(here: Path) -> None:
    option = "import argparse\np.add_argument('--out', type=str, default={})\n"
    for default, results in (("'models/'", ["models/"]), ("'model.pt'", [])):
        text = LEARNS + option.format(default)
        assert written(here, train_py=text).train.results == results


def test_imports_that_may_fail_or_are_for_types_are_not_needed(here: Path) -> None:
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


def test_a_folder_of_outputs_is_no_package(here: Path) -> None:
    (here / "wandb").mkdir()
    (here / "train.py").write_text("import wandb\nimport einx\n")
    (here / "einx").mkdir()
    found = scripts.imported(here, "train.py")
    assert (found.packages, found.unknown) == ({"wandb": "train.py"}, {})


def test_an_environment_of_conda_is_built_by_conda_where_it_has_more_than_packages(
    here: Path,
) -> None:
    file = "dependencies: [python=3.10, pytorch, pytorch-cuda=12.1, {}, {{pip: [einx]}}]"
    python = written(here, environment_yml=file.format("ffmpeg<7")).python
    assert (python.conda, python.requirements, python.version) == ("environment.yml", None, None)
    assert python.packages == []
    text = (here / "boxstrap.yaml").read_text()
    assert "  conda: environment.yml    # for ffmpeg\n" in text
    python = written(here, environment_yml=file.format("numpy")).python
    assert (python.conda, python.version) == (None, "3.10")
    assert python.packages == ["torch", "numpy", "einx"]


def test_a_module_that_nobody_knows_is_no_package(here: Path) -> None:
    """On an index, anybody may own that name."""
    profile = written(here, train_py="import torhc_utils\n" + LEARNS)
    assert profile.python.packages == ["torch"]
    assert notes(inspect_repository(here)) == [
        "train.py imports torhc_utils, which no requirement names"
    ]
    page = readme("pip install torhc-utils")
    assert written(
        here, README_md=page, train_py="import torhc_utils\n" + LEARNS
    ).python.packages == [
        "torhc-utils",
        "torch",
    ]


def test_what_is_built_with_what_is_there(here: Path) -> None:
    python = written(here, train_py="import flash_attn\n" + LEARNS).python
    assert python.no_build_isolation == ["flash-attn"]
    assert python.packages == ["torch", "setuptools", "wheel", "packaging", "psutil", "ninja"]


def test_keys_that_the_training_asks_for_are_offered(here: Path) -> None:
    text = LEARNS + "import os\nos.environ['HF_TOKEN']\nos.environ.get('MY_API_KEY')\n"
    written(here, train_py=text)
    line = "# secrets: [HF_TOKEN, MY_API_KEY]    # train.py reads it; train.py reads it"
    assert line in (here / "boxstrap.yaml").read_text()


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
    "notebook.ipynb": "{" * 3000,
    "long.ipynb": f'{{"cells": [{{"cell_type": "code", "source": ["import {LONG}"]}}]}}',
    "requirements/base.txt": "-r base.txt\n-r ../../../etc/passwd\n-r /etc/passwd\n",
    "run.sh": "\x1b[31m python train.py $(id) \\\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_breaks_nothing(here: Path, name: str) -> None:
    path = here / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(BROKEN[name], encoding="utf-8")
    text = write_profile(inspect_repository(here))
    (here / "boxstrap.yaml").write_text(text, encoding="utf-8")
    assert read_profile(None, repo_root=here).profile.version == 1
    assert "\x1b" not in text
    assert "root:" not in text


def test_what_lies_outside_is_none_of_the_repositorys_files(here: Path) -> None:
    (here.parent / "theirs.yaml").write_text("output_dir: of-another\n")
    (here / "own.yaml").write_text("output_dir: own\n")
    outside = ("../theirs.yaml", str(here.parent / "theirs.yaml"), "/etc/passwd", LONG)
    assert [name for name in ("own.yaml", *outside) if files.has(here, name)] == ["own.yaml"]


def test_a_requirements_file_is_read_with_those_that_it_names(here: Path) -> None:
    (here / "a").mkdir()
    (here / "a/r.txt").write_text("-r ../b.txt\n-r c.txt\nx==1 # why\n--index-url https://h\n")
    (here / "a/c.txt").write_text("y[z]>=2; python_version > '3'\n")
    found = declared.with_includes(here, "a/r.txt")
    assert declared.names(found.requirements) == {"x", "y"}


GUARD = "if __name__ == '__main__':\n    optimizer = 1\n"
BUILT = "[build-system]\nrequires = ['hatchling']\n"
OWN = BUILT + "[project]\nname = 'own'\nversion = '1'\n"
WITH_EXTRAS = (
    OWN + "dependencies = ['numpy']\n[project.optional-dependencies]\n"
    "webui = ['gradio']\ntrain = ['torch']\nsmall = ['torch']\ndev = ['pytest']\n"
)
SETUP = "from setuptools import setup\nsetup(name='own', install_requires=['torch'])\n"
WITH_PROGRAM = OWN + "dependencies = ['torch']\n[project.scripts]\nown = 'own.cli:main'\n"
INSTALL, RUN, LINK = "## Install\n", "## Train\n", readme("pip install -e .")
WINDOWS = "pywin32; sys_platform == 'win32'"
TAMING = "git+https://github.com/a/taming.git@m#egg=taming"
# A repository's files, and what its profile must say: the keys named here, as they are.
SHAPES: dict[str, tuple[dict[str, str], dict[str, object]]] = {
    "a link beside a requirements file of another part": (
        {"setup.py": SETUP, "web/requirements.txt": "flask\n", "README.md": LINK},
        {"python.requirements": [], "python.packages": ["-e ."]},
    ),
    "a link and the requirements that the same block names": (
        {"setup.py": SETUP, "requirements/metrics.txt": "nltk\n"}
        | {"README.md": readme("pip install -e .", "pip install -r requirements/metrics.txt")},
        {"python.requirements": ["requirements/metrics.txt"], "python.packages": ["-e ."]},
    ),
    "the extras where it trains": (
        {"pyproject.toml": WITH_EXTRAS}
        | {"README.md": INSTALL + readme("pip install -e '.[webui]'") + RUN
           + readme("pip install -e '.[small]'", "python train.py --a")},
        {"python.extras": ["small"], "python.packages": []},
    ),
    "extras for developers": (
        {"pyproject.toml": WITH_EXTRAS, "README.md": readme("pip install -e .[dev]")},
        {"python.extras": []},
    ),
    "a build that imports torch": (
        {"setup.py": "import torch\n" + SETUP, "README.md": LINK},
        {"python.no_build_isolation": ["-e ."]}
        | {"python.packages": ["torch", "setuptools", "wheel"]},
    ),
    "what a page builds last, in its block": (
        {"pyproject.toml": WITH_EXTRAS}
        | {"README.md": readme("pip install -e .[train]", "pip install x --no-build-isolation")},
        {"python.no_build_isolation": ["x"]},
    ),
    "a folder of the repository": (
        {"sub/knn/setup.py": SETUP, "README.md": readme("pip install torch ./sub/knn")},
        {"python.packages": ["torch", "./sub/knn"]},
    ),
    "an optional import": (
        {"train.py": "import torch\nif torch:\n    import flash_attn\n" + GUARD},
        {"python.packages": ["torch"], "python.no_build_isolation": []},
    ),
    "a marker": (
        {"setup.cfg": "[options]\ninstall_requires =\n  torch\n  " + WINDOWS},
        {"python.packages": ["torch", WINDOWS]},
    ),
    "conda's pip section": (
        {"environment.yaml": "dependencies: [python=3.8.5, pytorch, {pip: [-e ., "
         f"-e {TAMING}]}}]"},
        {"python.version": "3.8"}
        | {"python.packages": ["torch", "-e .", f"taming @ {TAMING}"]},
    ),
    "the command that a page runs": (
        {"a/train_mem.py": GUARD, "train_lora.py": LEARNS, "a/__init__.py": ""}
        | {"README.md": readme("torchrun --nproc_per_node=4 a/train_mem.py --output_dir models")},
        {"train.command": "torchrun --nproc_per_node=gpu a/train_mem.py --output_dir models"}
        | {"train.results": ["models/"]},
    ),
    "a program of the project's own": (
        {"pyproject.toml": WITH_PROGRAM, "own/cli.py": "", "own/__init__.py": ""}
        | {"a.yaml": "output_dir: saves/a\n"}
        | {"README.md": readme("own webui", "own train a.yaml")},
        {"train.command": "own train a.yaml", "train.results": ["saves/a/"]},
    ),
    "a module below src": (
        {"src/own/__init__.py": "", "src/own/main.py": LEARNS}
        | {"README.md": readme("python -m own.main --lr 1")},
        {"train.command": "python -m own.main --lr 1", "env": {"PYTHONPATH": "src"}},
    ),
    "help and an evaluation": (
        {"README.md": readme(*(f"python train.py {each}" for each in ("-h", "--eval", "-b 2")))},
        {"train.command": "python train.py -b 2"},
    ),
    "variables of the page": (
        {"README.md": readme('FLAGS="--lr 1 --depth 2"', "python train.py $FLAGS --data ~/x")},
        {"train.command": "python train.py --lr 1 --depth 2 --data ~/x"},
    ),
    "what is exported for it": (
        {"README.md": readme("export TOKENIZERS_PARALLELISM=false", "python train.py")},
        {"env": {"TOKENIZERS_PARALLELISM": "false"}},
    ),
    "mpi": (
        {"README.md": readme("mpiexec -n 8 python train.py")},
        {"train.command": "mpiexec python train.py", "packages": ["libopenmpi-dev", "openmpi-bin"]},
    ),
    "the system's packages": (
        {"README.md": readme("sudo apt-get install -y ffmpeg swig", "python train.py")},
        {"packages": ["ffmpeg", "swig"]},
    ),
    "data of a page, for what a run script trains": (
        {"run.sh": "torchrun --nproc_per_node=8 train.py\n", "data/cached.py": "# it loads\n"}
        | {"README.md": readme("# python data/x.py", "python data/cached.py 9", "./run.sh")},
        {"train.command": "torchrun --nproc_per_node=gpu train.py"}
        | {"prepare": ["python data/cached.py 9"]},
    ),
    "data by wget": (
        {"README.md": readme("mkdir -p d", "wget -O d/x https://h/x", "python train.py")},
        {"prepare": ["mkdir -p d", "wget -O d/x https://h/x"]},
    ),
    "a folder of scripts that is called runs": ({"runs/a.sh": ""}, {"train.results": []}),
    "a folder that only git's list of ignored ones names": (
        {".gitignore": "logs/\n"}, {"train.results": []},
    ),
    "an option of a module that says where it writes": (
        {"train.py": "import params\n" + LEARNS}
        | {"params.py": "p.add_argument('--logs', type=str, default='./logs/')\n"},
        {"train.results": ["logs/"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "expected"), SHAPES.values(), ids=SHAPES)
def test_a_page_is_read_as_one_unit(
    here: Path, files: dict[str, str], expected: dict[str, object]
) -> None:
    for name, text in {"train.py": LEARNS, **files}.items():
        if name != "train.py" or not any(each.startswith(("a/", "own/", "src/")) for each in files):
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            (here / name).write_text(text, encoding="utf-8")
    (here / "boxstrap.yaml").write_text(write_profile(inspect_repository(here)), encoding="utf-8")
    document: dict = read_profile(None, repo_root=here).profile.as_dict()
    found = {}
    for key in expected:
        value = document
        for step in key.split("."):
            value = value[step]
        found[key] = value
    assert found == expected


def test_modules_of_the_repository_are_not_missing_packages(here: Path) -> None:
    for name in ("pkg/data/__init__.py", "pkg/sub/__init__.py", "pkg/__init__.py"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("")
    (here / "pkg/sub/m.py").write_text("from ..data import x\nfrom . import y\nfrom .z import w\n")
    (here / "train.py").write_text("import torch\nimport pkg.sub.m\n" + GUARD)
    assert notes(inspect_repository(here)) == []


@pytest.mark.parametrize(
    ("asked", "example"), [(">=3.8,<3.11", "3.10"), (">=3.12", "3.12"), ("", "3.11")]
)
def test_the_example_of_a_version_is_one_that_the_project_accepts(
    here: Path, asked: str, example: str
) -> None:
    requires = f"requires-python = '{asked}'\n" if asked else ""
    (here / "pyproject.toml").write_text("[project]\nname = 'x'\n" + requires)
    assert f'# version: "{example}"' in write_profile(inspect_repository(here))


def test_what_else_a_page_installs_and_what_it_leaves_open_is_named(here: Path) -> None:
    page = readme("pip install -r requirements.txt") + "## Plots\n" + readme("pip install plots")
    page += RUN + readme("python train.py --data $DATA/x")
    written(here, requirements_txt="torch\n", README_md=page)
    assert notes(inspect_repository(here)) == [
        "a page also installs, for other uses: plots",
        "the command has places to fill in: $DATA/x",
    ]
