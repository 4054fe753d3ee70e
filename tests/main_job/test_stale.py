"""What the installer reads besides the requirements: a change there renews the environment."""

from __future__ import annotations

import pytest

from tests.main_job.conftest import Rent

pytestmark = pytest.mark.boxes

PROFILE = "version: 1\ngpu: {require: false}\ntrain: {command: python train.py}\n"
SETUP = """\
from setuptools import setup
setup(name="own", version="1", py_modules=[], install_requires=open("deps.txt").read().split())
"""
COPY = "from setuptools import setup\nsetup(name='copied', version='1', py_modules=['copied'])\n"


def test_setup_renews_the_environment_when_a_file_that_setup_py_reads_changes(rent: Rent) -> None:
    rented = rent("vast", used=True)
    repository = rented.user.repository(
        boxstrap__yaml=PROFILE,
        requirements__txt="\ufeff-e .\r\n./libs/copied\r\n",
        setup__py=SETUP,
        deps__txt="six\n",
        train__py="import copied, six; print('copied', copied.VALUE)\n",
    )
    copied = {"libs/copied/setup.py": COPY, "libs/copied/copied.py": "VALUE = 1\n"}
    repository.commit(copied)
    assert "copied 1" in rented.run("setup").must(0).out
    assert "already right" in rented.run("plan").must(0).out
    repository.commit({"deps.txt": "six\nidna\n", "train.py": "import idna; print('idna', 1)\n"})
    assert "idna 1" in rented.run("setup").must(0).out
    repository.commit(
        {
            "libs/copied/copied.py": "VALUE = 2\n",
            "train.py": "import copied; print(copied.VALUE + 5)\n",
        }
    )
    done = rented.run("setup").must(0)
    assert "\n  7\n" in done.out or "7" in done.out.split(), done.out


def test_a_changed_python_version_file_makes_a_new_environment(rent: Rent) -> None:
    """It trained on with the Python from before: "python skip already right"."""
    rented = rent("vast", used=True)
    venv, has = "/workspace/homework/.venv", "3.11"
    repository = rented.user.repository(
        boxstrap__yaml=PROFILE, train__py="import sys; print('on', sys.version_info[:2])\n"
    )
    repository.commit({".python-version": f"{has}\n"})
    rented.run("setup").must(0)
    rented.box.run(f"touch {venv}/kept")
    repository.commit({".python-version": "# of uv\n\n3.99\r\n"})
    failed = rented.run("setup").must(7)
    assert "Python 3.99 is not here" in failed.text
    assert "this box has:" in failed.err
    assert "/usr/bin/python3" in failed.err
    # What is there stays, and is right again.
    repository.commit({".python-version": f"{has}\n"})
    rented.run("setup").must(0)
    assert rented.box.exists(f"{venv}/kept")
    # As if it had been made with another one.
    rented.box.run(f"sed -i 's/^version.*/version_info = 3.8.1/' {venv}/pyvenv.cfg")
    rented.run("setup").must(0)
    assert not rented.box.exists(f"{venv}/kept")
