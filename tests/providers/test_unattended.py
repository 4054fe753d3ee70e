"""What docs/ci.md says to copy, as it stands there: a workflow of hosted CI, a line for cron."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.boxes import Rig
from tests.cli import User
from tests.plain_environment import HERE
from tests.providers.accounts import KEY
from tests.providers.demo import rentable

pytestmark = pytest.mark.boxes

TRAIN = """\
import pathlib, sys
pathlib.Path("out").mkdir(exist_ok=True)
pathlib.Path("out/loss.txt").write_text("0.25")
print("step 1 loss 0.25", flush=True)
sys.exit({code})
"""
SKIPPED = {"Install", "Make a key for the box"}
"""The rig's user has the program, and the key that the rig's box lets in."""


def runs(step: Mapping[str, Any], *, failed: bool) -> bool:
    """Whether a job gets to this step, as its `if` says."""
    assert step.get("if", "always()") == "always()"
    return "if" in step or not failed


def played(user: User, job: Mapping[str, Any]) -> tuple[bool, str]:
    """Run a job's commands as a runner does; return whether it succeeded, and all output."""
    values = {"secrets.VAST_API_KEY": KEY, "vars.BOXSTRAP_CONSENT": "", "vars.BOXSTRAP_WHEEL": ""}
    expression = re.compile(r"\$\{\{ (.*?) \}\}")
    env = {
        name: expression.sub(lambda found: values[found[1]], value)
        for name, value in job["env"].items()
    }
    failed, said = False, ""
    for step in job["steps"]:
        if "run" not in step or step["name"] in SKIPPED or not runs(step, failed=failed):
            continue
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
            cwd=user.place,
            env={**user.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        said += f"\n== {step['name']}: {done.returncode}\n{done.stdout}"
        failed |= done.returncode != 0
    return not failed, said


@pytest.mark.parametrize("code", [3, 0], ids=["fails", "succeeds"])
@pytest.mark.sampled
def test_the_documented_ci_workflow_gives_the_box_back_however_the_training_ends(
    mirror_rig: Rig, shared_folder: Path, tmp_path: Path, code: int
) -> None:
    job = yaml.safe_load((HERE / "docs/ci/train.yml").read_text())["jobs"]["train"]
    train = TRAIN.format(code=code)
    with rentable(mirror_rig, tmp_path / "home", train, shared_folder) as (user, account):
        del user.env["VAST_API_KEY"]
        # As a runner checks it out: the last commit alone, on no branch.
        clone = user.home / "work"
        subprocess.run(
            ["git", "clone", "-q", "--depth=1", f"file://{user.place}", clone], check=True
        )
        subprocess.run(["git", "-C", clone, "checkout", "-q", "--detach"], check=True)
        user.place = clone
        is_done, said = played(user, job)
        assert is_done == (code == 0), said
        assert account.rented == account.destroyed == ["9001"], said
        assert "step 1 loss 0.25" in said
        artifact = next(step for step in job["steps"] if "upload-artifact" in step.get("uses", ""))
        (loss,) = (clone / artifact["with"]["path"]).glob("*/*/out/loss.txt")
        assert loss.read_text() == "0.25"


def test_the_cron_line_of_the_docs_gives_the_box_back_whatever_the_training_ends_with(
    user: User,
) -> None:
    page = (HERE / "docs/ci.md").read_text()
    found = re.search(r"```sh\n17 2 \* \* \* (.*)\n```", page)
    assert found
    assert "%" not in found[1]  # cron would end the line there
    user.repository()
    program = user.home / ".local/bin/boxstrap"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text('#!/bin/sh\necho "$1 in ${PWD##*/}"\n[ "$1" != wait ]\n')
    program.chmod(0o755)
    line = ["env", "-i", f"HOME={user.home}", "PATH=/usr/bin:/bin", "/bin/sh", "-c", found[1]]
    subprocess.run(line, cwd=user.home, check=False)
    said = (user.home / "nightly.log").read_text().splitlines()
    assert said == [f"{task} in homework" for task in ("run", "wait", "down")]
