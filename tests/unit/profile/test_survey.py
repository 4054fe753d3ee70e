"""What `init` reads from a repository, broken or not, and writes; see also `repositories/*.txt`."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bootstrap.profile.load import read_profile
from bootstrap.profile.scaffold import notes, write_profile
from bootstrap.profile.survey import declared, files
from bootstrap.profile.survey.environment import Environment
from bootstrap.profile.survey.facts import Facts, inspect_repository, look_where_you_stand
from tests.repository_files import read_repositories, write_files

LEARNS = "import torch\nif __name__ == '__main__':\n    optimizer = 1\n"


def test_init_in_a_subfolder_writes_the_training_of_that_folder(here: Path) -> None:
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


def test_init_reads_yaml_with_a_here_document_and_a_merge_key(tmp_path: Path) -> None:
    file = tmp_path / "environment.yml"
    file.write_text("run: |\n  cat <<EOF\nbase: &base {a: 1}\nmore: {<<: *base, b: 2}\n")
    read = files.yaml(file)
    assert (read["run"], read["more"]) == ("cat <<EOF\n", {"<<": {"a": 1}, "b": 2})


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


def test_init_reads_no_file_outside_the_repository(here: Path) -> None:
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


REPOSITORIES = read_repositories()
assert len(REPOSITORIES) > 100


@pytest.mark.slow
@pytest.mark.parametrize("parts", REPOSITORIES.values(), ids=REPOSITORIES)
def test_init_writes_the_expected_profile_and_notes_for_each_repository(
    here: Path, parts: dict[str, str]
) -> None:
    said = {name[2:]: text.strip() for name, text in parts.items() if name.startswith("= ")}
    write_files(parts, here)
    facts = replace(
        inspect_repository(here, command=said.get("command", "")),
        url=said.get("url"),
        last_commit=said.get("last commit", ""),
    )
    text = write_profile(facts)
    (here / "boxstrap.yaml").write_text(text, encoding="utf-8")
    read_profile(None, repo_root=here)
    found = yaml.safe_load(text)
    found.pop("version")
    found["python"].pop("torch_backend")
    found.get("train", {}).pop("session", None)
    assert found == yaml.safe_load(said["profile"])
    named, told = said.get("named", "").splitlines(), notes(facts)
    assert [part for part in named if part not in "\n".join([*told, text])] == []
    assert [part for part in said.get("unsaid", "").splitlines() if part in text] == []
    assert [note for note in told if not any(part in note for part in named)] == []


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
