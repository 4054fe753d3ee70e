"""How the environment is made: adopted, by pip, from a lock, from a project, from two indexes."""

from __future__ import annotations

import subprocess

import pytest

from tests.boxes import Rig
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.person import BIN, PROFILE, Repository

pytestmark = pytest.mark.boxes

TRAIN = "import iniconfig, sys\nprint('step 1', sys.prefix, iniconfig.__file__)\n"
PROJECT = """\
[project]
name = "homework"
version = "0"
requires-python = ">=3.10"
dependencies = []
[project.optional-dependencies]
train = ["iniconfig>=2"]
"""


def test_an_existing_environment_is_adopted(rent: Rent) -> None:
    rented = rent("vast")
    rented.person.repository(train__py=TRAIN, requirements__txt="iniconfig>=2\n")
    before = rented.box.run("stat -c '%Y %i' /venv/main/pyvenv.cfg")
    done = rented.run("setup", "--set", "python.venv=/venv/main").must(0)
    assert "step 1 /venv/main /venv/main/lib" in done.out
    assert rented.box.run("stat -c '%Y %i' /venv/main/pyvenv.cfg") == before
    assert not rented.box.exists("/workspace/homework/.venv")
    assert "adopted: /venv/main" in rented.run("logs", "--step", "python").must(0).out


def test_an_adopted_environment_of_another_python_is_refused(rent: Rent) -> None:
    rented = rent("vast")
    rented.person.repository()
    sets = ("--set", "python.venv=/venv/main", "--set", "python.version=3.99")
    failed = rented.run("setup", *sets).must(7)
    assert "/venv/main has Python" in failed.err


def test_pip_where_it_is_asked_for(rent: Rent) -> None:
    rented = rent("vast")
    rented.person.repository(train__py=TRAIN, requirements__txt="iniconfig>=2\n")
    done = rented.run("setup", "--set", "python.installer=pip").must(0)
    assert "step 1 /workspace/homework/.venv" in done.out
    installer = "/workspace/homework/.venv/lib/python3*/site-packages/iniconfig-*/INSTALLER"
    assert rented.box.run(f"cat {installer}").strip() == "pip"
    assert "nothing to do" in rented.run("setup", "--set", "python.installer=pip").must(0).out


def test_pip_is_brought_where_uv_built_the_environment(rent: Rent) -> None:
    rented = rent("vast")
    rented.person.repository(train__py=TRAIN, requirements__txt="iniconfig>=2\n")
    rented.run("setup").must(0)
    rented.run("setup", "--set", "python.installer=pip").must(0)


def lock(repository: Repository, rented: Rented, rig: Rig) -> None:
    """Write a uv.lock that names the mirror, as a person's uv would."""
    subprocess.run(
        [str(BIN / "uv"), "lock", "--quiet", "--default-index", rig.mirror.index_url],
        cwd=repository.root,
        env={**rented.person.env, "UV_NO_CONFIG": "1"},
        check=True,
        timeout=120,
    )
    repository.commit({}, "Lock")


def test_a_lock_is_installed_to_the_letter(rent: Rent, mirror_rig: Rig) -> None:
    rented = rent("vast")
    repository = rented.person.repository(
        train__py=TRAIN, pyproject__toml=PROJECT.replace("iniconfig>=2", "iniconfig==2.0.0")
    )
    lock(repository, rented, mirror_rig)
    done = rented.run("setup", "--set", "python.extras=[train]").must(0)
    assert "step 1 /workspace/homework/.venv" in done.out
    packages = rented.box.run("ls /workspace/homework/.venv/lib/python3*/site-packages")
    assert "iniconfig-2.0.0.dist-info" in packages


def test_a_project_without_a_build_system_gives_its_dependencies(rent: Rent) -> None:
    rented = rent("vast")
    rented.person.repository(train__py=TRAIN, pyproject__toml=PROJECT)
    done = rented.run("setup", "--set", "python.extras=[train]").must(0)
    assert "step 1 /workspace/homework/.venv" in done.out


def test_a_second_index_in_the_requirements(rent: Rent, mirror_rig: Rig) -> None:
    rented = rent("vast")
    index = mirror_rig.mirror.index_url
    rented.person.repository(
        train__py=TRAIN,
        requirements__txt=f"--index-url {index}\n--extra-index-url {index}\n-r more.txt\n",
        more__txt="iniconfig>=2\n",
    )
    done = rented.run("setup").must(0)
    assert "step 1 /workspace/homework/.venv" in done.out


def test_a_changed_included_file_builds_again(rent: Rent) -> None:
    rented = rent("vast")
    repository = rented.person.repository(
        boxstrap__yaml=PROFILE, requirements__txt="-r more.txt\n", more__txt="iniconfig>=2\n"
    )
    rented.run("setup").must(0)
    repository.commit({"more.txt": "iniconfig>=2\npathspec\n"})
    rented.run("setup").must(0)
    rented.box.run("/workspace/homework/.venv/bin/python -c 'import pathspec'")
