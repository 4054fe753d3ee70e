"""Another program sets boxes up: the example of docs/library.md, word for word."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from tests.cli import User
from tests.main_job.conftest import Rent
from tests.plain_environment import HERE

HEAVY = (
    "bootstrap.link",
    "bootstrap.setup.sequence",
    "invoke",
    "git",
    "jinja2",
    "paramiko",
    "pydantic",
)


@pytest.mark.boxes
def test_a_program_sets_two_boxes_up_at_once(rent: Rent) -> None:
    boxes = [rent("vast", used=True), rent("vast", used=True)]
    user = boxes[0].user
    made = user.repository()
    (user.home / ".ssh").mkdir(mode=0o700)
    shutil.copy(boxes[0].box.identity, user.home / ".ssh/id_ed25519")
    text = (HERE / "docs/library.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    named = re.findall(r'"(root@[0-9.:]+)"', example)
    assert len(named) == len(boxes)
    for host, rented in zip(named, boxes, strict=True):
        example = example.replace(host, rented.box.host_string)

    said = _run(example, user)
    assert said.stderr == ""
    lines = said.stdout.splitlines()
    assert len({line.split(":")[0] for line in lines}) == 2
    for line, rented in zip(lines, boxes, strict=True):
        assert re.search(r": train-1 is (running|finished), \('step 1 loss 0.5 -'", line), line
        assert rented.runs() == ["train-1"]
        head = rented.as_user(f"cat '{rented.folder}'/runs/*/train-1/commit").strip()
        assert head == made.head
    assert {box["box"] for box in user.run("status", "--json").must(0).json()["boxes"]} == {
        line.split(":")[0] for line in lines
    }


def test_its_errors_are_plain_exceptions(user: User) -> None:
    """They don't exit the process, and Invoke is not imported."""
    said = _run(
        "import sys\n"
        "from bootstrap.errors import UsageError\n"
        "from bootstrap.setup import SetupRequest, run_setup\n"
        "try:\n"
        "    run_setup(SetupRequest(host='local'))\n"
        "except UsageError as error:\n"
        "    print(error.what, 'invoke' in sys.modules)\n",
        user,
    )
    assert (said.stdout, said.stderr) == (
        "this is not a git repository, nor inside one. False\n",
        "",
    )


def test_importing_it_imports_nothing_heavy(user: User) -> None:
    said = _run("import sys, bootstrap, bootstrap.setup\nprint(*sys.modules)", user)
    loaded = set(said.stdout.split())
    assert "bootstrap.setup" in loaded
    assert loaded.isdisjoint(HEAVY)


def _run(program: str, user: User) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=user.home,
        env=user.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
