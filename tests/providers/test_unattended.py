"""What docs/ci.md says to copy, as it stands there: a workflow of hosted CI, a line for cron."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.boxes import Rig
from tests.cli import User
from tests.plain_environment import BIN, HERE
from tests.providers.accounts import KEY
from tests.providers.demo import rentable

pytestmark = pytest.mark.boxes

WORKFLOW = HERE / "docs/ci/train.yml"
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
    values = {"secrets.VAST_API_KEY": KEY, "vars.BOXSTRAP_CONSENT": ""}
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
    mirror_rig: Rig, tmp_path: Path, code: int
) -> None:
    job = yaml.safe_load(WORKFLOW.read_text())["jobs"]["train"]
    with rentable(mirror_rig, tmp_path / "home", TRAIN.format(code=code)) as (user, account):
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


def test_the_cron_line_of_the_docs_gives_the_box_back(mirror_rig: Rig, tmp_path: Path) -> None:
    page = (HERE / "docs/ci.md").read_text()
    found = re.search(r"```sh\n17 2 \* \* \* (.*)\n```", page)
    assert found
    assert "%" not in found[1]  # cron would end the line there
    with rentable(mirror_rig, tmp_path / "home", TRAIN.format(code=0)) as (user, account):
        key = user.home / ".config/vastai/vast_api_key"
        key.parent.mkdir(parents=True)
        key.write_text(KEY)
        (user.home / ".local/bin").mkdir(parents=True, exist_ok=True)
        (user.home / ".local/bin/boxstrap").symlink_to(BIN / "boxstrap")
        del user.env["VAST_API_KEY"]
        folders = [one for one in user.env["PATH"].split(":") if one != str(BIN)]
        subprocess.run(
            ["/bin/sh", "-c", found[1]],
            cwd=user.home,
            env={**user.env, "PATH": ":".join(folders)},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
        said = (user.home / "nightly.log").read_text()
        assert account.rented == account.destroyed == ["9001"], said
        (loss,) = user.place.glob("boxstrap-results/*/*/out/loss.txt")
        assert loss.read_text() == "0.25"
