"""This machine as a box that was set up before, for another repository: it has our tools, and was
checked. What `main_job/used.py` is for boxes."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.boxes.places import locked
from tests.cli import User
from tests.forked import SHARED
from tests.plain_environment import shared

_PROFILE = "version: 1\nextends: local\nbox: {workdir: ~/work}\n"
_OF_ITS_REPOSITORY = ("runs", "setups", "store", "steps/earlier-*", "lock", "setup.sh")


def seem_set_up(user: User, workdir: str = "work") -> User:
    """Give the user's working folder what an earlier setup left there; return the user."""
    place = Path(os.environ[SHARED]).parent if SHARED in os.environ else shared()
    made = place / "set-up"  # by the first of all workers
    with locked(place / "set-up.lock"):
        if not made.exists():
            _make(made)
    there = user.home / workdir / ".boxstrap"
    there.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", made, there], check=True)
    return user


def _make(made: Path) -> None:
    earlier = User(made.with_name("set-up-home"))
    earlier.repository("earlier", boxstrap__yaml=_PROFILE)
    earlier.run("setup", "--host", "local").must(0)
    folder = earlier.home / "work/.boxstrap"
    for name in _OF_ITS_REPOSITORY:
        for path in folder.glob(name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    folder.rename(made)
