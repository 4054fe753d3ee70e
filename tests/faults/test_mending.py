"""What broke on a box is noticed by the checks and mended; what its user did there stays."""

from __future__ import annotations

import pytest

from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.person import Repository

pytestmark = pytest.mark.boxes

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGgsEHGhQK0YcNq5xfbNNBOrtLRuJjb3CtQcYXXCSmnF laptop"
PROFILE = """\
version: 1
gpu: {require: false}
ssh: {authorized_keys: [~/laptop.pub]}
train: {command: python train.py}
"""
NOTES = "".join(f"line {number} of the notes\n" for number in range(200))
FILES = {
    "boxstrap__yaml": PROFILE,
    "requirements__txt": "iniconfig>=2\nsix\n",
    "notes__txt": NOTES,
}
STORE = "/workspace/.boxstrap/store/*.git"
TREE = "/workspace/homework"
PACKAGES = f"{TREE}/.venv/lib/python3*/site-packages"


def set_up(rent: Rent) -> tuple[Rented, Repository]:
    rented = rent("vast")
    (rented.person.home / "laptop.pub").write_text(f"{KEY}\n")
    repository = rented.person.repository(**FILES)
    rented.run("setup").must(0)
    return rented, repository


def broken(rented: Rented) -> dict[str, str]:
    """The steps that would run, and why."""
    steps = rented.run("plan", "--json").must(0).json()["steps"]
    return {row["step"]: row["why"] for row in steps if row["runs"]}


def looks(rented: Rented) -> str:
    """What a person sees of the box: files, what git says, packages that can be imported."""
    return rented.box.run(
        f"cd {TREE} && git status --porcelain && git log --oneline && git fsck --full --no-dangling"
        " && cat notes.txt && .venv/bin/python -c 'import iniconfig, six; print(six.__file__)'"
        " && stat -c '%a %n' ~/.ssh ~/.ssh/authorized_keys && sort ~/.ssh/authorized_keys"
        " && cat ~/.bashrc ~/.boxstrap/env"
    )


@pytest.mark.parametrize(
    ("fault", "damage", "step"),
    [
        ("package's folder deleted", f"rm -r {PACKAGES}/iniconfig", "python"),
        ("package's only file deleted", f"rm {PACKAGES}/six.py", "python"),
        ("environment's python broken", f"ln -sfn /nowhere {TREE}/.venv/bin/python", "python"),
        ("environment deleted", f"rm -r {TREE}/.venv", "python"),
        ("file cut short", f"truncate -s 1000 {TREE}/notes.txt", "repo"),
        ("file emptied", f": >{TREE}/notes.txt", "repo"),
        ("pack cut short", f"truncate -s 300 {TREE}/.git/objects/pack/*.pack", "repo"),
        ("pack's index cut short", f"truncate -s 300 {STORE}/objects/pack/*.idx", "repo"),
        ("pack deleted", f"rm -f {TREE}/.git/objects/pack/*", "repo"),
        ("git's index emptied", f": >{TREE}/.git/index", "repo"),
        ("git's HEAD emptied", f": >{TREE}/.git/HEAD", "repo"),
        ("git's branch emptied", f": >{TREE}/.git/refs/heads/main", "repo"),
        ("our key taken out", "sed -i /laptop/d ~/.ssh/authorized_keys", "ssh"),
        ("keys' modes too wide", "chmod 644 ~/.ssh/authorized_keys; chmod 755 ~/.ssh", "ssh"),
        ("small environment deleted", "rm -r ~/.boxstrap/agent", "agent"),
        ("small environment robbed", "rm -r ~/.boxstrap/agent/lib/python3*/*/psutil", "agent"),
        ("uv deleted", "rm $(cat ~/.boxstrap/uv)", "agent"),
        ("rc line taken out", "sed -i /boxstrap/d ~/.bashrc", "shell"),
        ("link to our folder deleted", "rm ~/.boxstrap", "shell"),
    ],
)
def test_damage_is_noticed_and_mended(
    rent: Rent, faults: Faults, fault: str, damage: str, step: str
) -> None:
    rented, repository = set_up(rent)
    before = looks(rented)
    with faults.attempt(f"damage: {fault}"):
        rented.box.run(damage)
        assert broken(rented).get(step) == "broken"
        rented.run("setup").must(0)
        assert looks(rented) == before
        assert broken(rented) == {}
        assert rented.runs() == ["train-1"]
        # It serves for the next commit too.
        repository.commit({"notes.txt": f"{NOTES}and on\n"})
        rented.run("setup").must(0)
        assert rented.box.read(f"{TREE}/notes.txt") == f"{NOTES}and on\n"
        assert rented.runs() == ["train-1", "train-2"]
