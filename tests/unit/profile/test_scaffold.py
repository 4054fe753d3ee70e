"""The first boxstrap.yaml loads as generated, for any repository."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bootstrap.profile.load import read_profile
from bootstrap.profile.scaffold import notes, write_profile
from bootstrap.profile.survey.environment import Environment
from bootstrap.profile.survey.facts import Facts, inspect_repository


def loaded(root: Path, url: str | None = None):
    (root / "boxstrap.yaml").write_text(
        write_profile(replace(inspect_repository(root), url=url)), encoding="utf-8"
    )
    return read_profile(None, repo_root=root)


def test_init_in_an_empty_repository_writes_no_training_and_no_requirements(here):
    profile = loaded(here).profile
    assert profile.train is None
    assert profile.python.requirements is None
    assert profile.python.lock is None


def test_init_in_a_repository_with_requirements_and_train_py_fills_in_the_profile(here):
    (here / "requirements.txt").write_text("torch\nwandb==0.19\n")
    (here / ".python-version").write_text("3.11\n")
    (here / "train.py").write_text("")
    (here / "out").mkdir()
    profile = loaded(here, "git@github.com:me/homework.git").profile
    assert profile.python.version == "3.11"
    assert profile.python.requirements == ["requirements.txt"]
    assert profile.train.command == "python train.py"
    assert profile.train.results == ["out/"]
    text = (here / "boxstrap.yaml").read_text()
    assert "(git@github.com:me/homework.git)" in text
    assert "# secrets: [WANDB_API_KEY]" in text


def test_init_in_a_project_with_uv_lock_writes_python_lock_and_no_requirements(here):
    (here / "pyproject.toml").write_text('[project]\nname = "x"\nrequires-python = ">=3.10"\n')
    (here / "uv.lock").write_text("")
    (here / "requirements.txt").write_text("")
    profile = loaded(here).profile
    assert profile.python.lock == "uv.lock"
    assert profile.python.requirements is None
    assert "pyproject.toml asks for >=3.10" in (here / "boxstrap.yaml").read_text()


@pytest.mark.parametrize(
    ("script", "command"),
    [
        ("my train.py", "python 'my train.py'"),
        ("pretrain_bert.py", "python pretrain_bert.py"),
        ("train$(id).py", None),
        ("main.py", None),
    ],
)
def test_init_takes_a_script_as_training_only_if_its_name_says_train(here, script, command):
    (here / script).write_text("")
    train = loaded(here).profile.train
    assert (train.command if train else None) == command


def test_init_lists_several_equally_likely_training_scripts_and_chooses_none(here):
    (here / "setup.py").write_text("")
    (here / "README.md").write_text("```\npython setup.py install\n```\n")
    for name in ("mnist/main.py", "dcgan/main.py", ".git/train.py", "a/b/train.py"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text("")
    assert loaded(here).profile.train is None
    assert notes(inspect_repository(here)) == ["may be the training: dcgan/main.py, mnist/main.py"]
    (here / "mnist/main.py").unlink()
    (here / "dcgan/main.py").rename(here / "dcgan/train_gan.py")
    assert inspect_repository(here).script == "dcgan/train_gan.py"
    assert notes(inspect_repository(here)) == []
    trains = "import torch\nif __name__ == '__main__':\n    optimizer = 1\n"
    (here / "dcgan/train_gan.py").write_text(trains)
    # Of a collection one is taken, and others are named; what lies beside it is of the one taken.
    for name in ("dcgan", "vae", "gcn", "gat", "snli", "mnist"):
        (here / name).mkdir(exist_ok=True)
        (here / name / "main.py").write_text(trains)
    assert notes(inspect_repository(here)) == [
        "may be the training: dcgan/train_gan.py, gat/main.py, gcn/main.py, vae/main.py, "
        "snli/main.py and 1 more (taken is dcgan/train_gan.py; `init --command` takes another)"
    ]


def test_init_names_notebook_imports_that_no_requirement_names(here):
    lines = [
        "import os, json\n",
        "import pandas as pd\n",
        "from sklearn import svm\n",
        "import mine",
    ]
    cells = [
        {"cell_type": "markdown", "source": ["import nothing"]},
        {"cell_type": "code", "source": lines},
        {"cell_type": "code", "source": "import cv2\nimport torch.nn as nn"},
        {"cell_type": "code", "source": "import mpl_toolkits.mplot3d\nimport progressbar"},
    ]
    (here / "mine.py").write_text("")
    (here / "notebooks").mkdir()
    (here / "notebooks/look.ipynb").write_text(json.dumps({"cells": cells}))
    (here / "odd.ipynb").write_text('{"cells": 7}')
    (here / "requirements.txt").write_text("# pandas\nscikit_learn>=1\nmatplotlib\nprogressbar33\n")
    (here / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["torch>=2"]\n')
    assert notes(inspect_repository(here)) == [
        "no training script was found: `train` in the profile says what runs",
        "notebooks/look.ipynb imports pandas, which no requirement names",
        "notebooks/look.ipynb imports opencv-python, which no requirement names",
    ]


def test_init_installs_a_project_whose_readme_runs_setup_py_and_names_its_scripts(here):
    (here / "setup.py").write_text("from setuptools import setup\nsetup(name='x')\n")
    (here / "requirements.txt").write_text("numpy\n")
    (here / "x/examples").mkdir(parents=True)
    (here / "x/examples/__init__.py").write_text("")
    (here / "x/examples/k_means.py").write_text("import numpy\n")
    ran = ("setup.py install", "setup.py test", "x/examples/k_means.py")
    (here / "README.md").write_text("".join(f"    $ python {line}\n" for line in ran))
    assert loaded(here).profile.python.packages == ["-e ."]
    assert notes(inspect_repository(here)) == [
        "no training script was found: `train` in the profile says what runs",
        "README.md runs a script: `init --command 'python x/examples/k_means.py'` takes it",
    ]


def test_init_writes_a_script_not_called_train_as_a_comment_and_lists_its_imports(here):
    guard = "\nif __name__ == '__main__':\n    print()\n"
    (here / "makemore.py").write_text(
        "import torch\nimport helper, os\nfrom yaml import x\n" + guard
    )
    (here / "helper.py").write_text("import nothing\n")
    (here / "requirements.txt").write_text("pyyaml\n")
    assert notes(inspect_repository(here)) == [
        "may be the training: makemore.py",
        "makemore.py imports torch, which no requirement names",
    ]
    profile = loaded(here).profile
    assert profile.train is None
    assert profile.python.packages == []
    assert "#   command: python makemore.py" in (here / "boxstrap.yaml").read_text()


def test_init_adds_packages_imported_by_a_training_script_in_a_source_folder(here):
    (here / "src/mine").mkdir(parents=True)
    (here / "src/train.py").write_text("import mine\nimport beside\nimport torch\n")
    (here / "src/beside.py").write_text("")
    assert notes(inspect_repository(here)) == []
    assert loaded(here).profile.python.packages == ["torch"]
    assert "packages: [torch]    # src/train.py imports it" in (here / "boxstrap.yaml").read_text()


def test_init_writes_no_python_version_if_the_python_version_file_names_pypy(here):
    (here / ".python-version").write_text("pypy3.10-7.3\n3.11\n")
    assert loaded(here).profile.python.version is None


ODD = st.none() | st.text(max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=st.text(max_size=20), url=ODD, requires=ODD)
def test_init_writes_odd_text_of_a_repository_only_into_comments(here, name, url, requires):
    text = write_profile(Facts(name, url=url, environment=Environment(requires_python=requires)))
    (here / "boxstrap.yaml").write_text(text, encoding="utf-8")
    assert read_profile(None, repo_root=here).profile.env == {}


def test_every_commented_key_that_init_writes_loads_when_uncommented(here):
    """Uncommented, the sketch still loads."""
    text = write_profile(Facts("x"))
    keys = ("extends", "git", "url", "ref", "access", "gpu", "count", "name", "min_memory_gib")
    keys += ("secrets", "train", "command", "results", "version", "requirements")
    lines = []
    for line in text.splitlines():
        bare = line.replace("# ", "", 1)
        is_key = bare.strip().partition(":")[0] in keys
        lines.append(bare if is_key else line)
    (here / "boxstrap.yaml").write_text("\n".join(lines), encoding="utf-8")
    profile = read_profile(None, repo_root=here).profile
    assert profile.git.access == "url"
    assert profile.gpu.count == 1
    assert profile.train.command == "python train.py"
