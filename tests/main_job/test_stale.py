"""A Python version that the repository asks for: another one makes another environment."""

import pytest

from tests.main_job.conftest import Rent

pytestmark = pytest.mark.boxes

PROFILE = "version: 1\ngpu: {require: false}\ntrain: {command: python train.py}\n"


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
