"""Fixtures: a user's repository on a git host that boxes reach, and boxes to rent."""

import base64
import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.boxes import RigBox
from tests.boxes.git_server import GitServer
from tests.cli import User, UserRepository
from tests.main_job.conftest import rent

__all__ = ["hosted", "rent"]

PROFILE = """\
version: 1
extends: {extends}
ssh: {{user: {user}, authorized_keys: [~/rig.pub]}}
gpu: {{require: false}}
env: {{GREETING: "it's $HOME", R: abc, run: abc}}
{more}train: {{command: python train.py}}
"""
TRAIN = """\
import iniconfig, os, sys, time
assert os.environ["R"] == os.environ["run"] == "abc"
print("step 1", os.environ["GREETING"], os.environ.get("API_KEY", "-"), sys.prefix, flush=True)
time.sleep(float(os.environ.get("LINGER", "0")))
"""

Hosted = Callable[..., tuple[UserRepository, GitServer]]


@pytest.fixture
def hosted(user: User, tmp_path: Path) -> Iterator[Hosted]:
    """`hosted(box)`: a repository for that box, and the git host where its commit is."""
    with contextlib.ExitStack() as stack:

        def make(
            box: RigBox, *, token: str = "", extends: str = "ssh", more: str = ""
        ) -> tuple[UserRepository, GitServer]:
            user.home.joinpath("rig.pub").write_text(Path(f"{box.identity}.pub").read_text())
            text = PROFILE.format(extends=extends, user=box.user, more=more)
            made = user.repository(
                boxstrap__yaml=text, train__py=TRAIN, requirements__txt="iniconfig>=2\n"
            )
            folder = tmp_path / "host"
            bare = str(folder / "homework.git")
            subprocess.run(["git", "clone", "-q", "--bare", str(made.root), bare], check=True)
            subprocess.run(["git", "-C", bare, "config", "http.receivepack", "true"], check=True)
            gateway = box.address.rpartition(".")[0] + ".1"
            host = GitServer(gateway, folder, token)
            stack.callback(host.close)
            made.git("remote", "add", "origin", host.url("homework.git"))
            user.agree()
            basic = base64.b64encode(f"me:{token}".encode()).decode()
            made.git("-c", f"http.extraHeader=Authorization: Basic {basic}", "fetch", "-q")
            return made, host

        yield make
