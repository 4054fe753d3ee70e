"""The profile's variables in each kind of shell: there with every byte, and put back."""

from __future__ import annotations

import pytest

from tests.boxes.environment_probe import WAYS
from tests.main_job.conftest import Rent

pytestmark = pytest.mark.boxes

PROFILE = """\
version: 1
gpu: {require: false}
env: {GREETING: "it's $HOME `x` \\"q\\" é!", names: ours, WANDB_MODE: online}
secrets: [API_KEY]
train: {command: python train.py}
"""
HAS = {
    "GREETING": 'it\'s $HOME `x` "q" é!',
    "names": "ours",
    "WANDB_MODE": "online",
    "API_KEY": "key-7f1c'\n\n!$x 5d",
}
SPOILED = "export WANDB_MODE=offline\nunset names\n"


def test_env_of_the_profile_is_in_every_kind_of_shell_and_setup_puts_it_back(rent: Rent) -> None:
    rented = rent("vast")
    box = rented.box

    def seen() -> dict[str, dict[str, str]]:
        found = rented.environments()
        return {way: {name: has[name] for name in HAS if name in has} for way, has in found.items()}

    rented.user.repository(boxstrap__yaml=PROFILE)
    rented.user.env["API_KEY"] = HAS["API_KEY"]
    rented.user.agree()
    before = {name: box.read(f"/root/{name}") for name in (".bashrc", ".profile")}
    rented.run("setup").must(0)
    assert seen() == dict.fromkeys(WAYS, HAS)

    # What start-up files do after ours is theirs, and the training does not see it.
    box.write("/root/.bashrc", box.read("/root/.bashrc") + SPOILED)
    kept = {name: HAS[name] for name in ("GREETING", "API_KEY")}
    found = seen()
    assert found["vscode"] == {**kept, "WANDB_MODE": "offline"}
    assert found["training"] == HAS

    for name, text in before.items():
        box.write(f"/root/{name}", text)
    assert seen()["ssh"] == {}  # without our own line
    rented.run("setup").must(0)
    assert seen() == dict.fromkeys(WAYS, HAS)
