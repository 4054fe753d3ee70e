"""The profile's variables in each kind of shell: what overrides or removes them is named."""

from __future__ import annotations

import pytest

from bootstrap.protocol.environment_comparison import WAYS
from tests.main_job.conftest import Rent

pytestmark = pytest.mark.boxes

PROFILE = """\
version: 1
gpu: {require: false}
env: {GREETING: "it's $HOME `x` \\"q\\" é!", names: ours, WANDB_MODE: online}
secrets: [API_KEY]
train: {command: python train.py}
"""
SECRET = "key-7f1c'\n\n!$x 5d"
SPOILED = "export WANDB_MODE=offline\nunset names\n"
SILENT = '[ -z "$TMUX" ] || exec true\n'


def test_what_start_up_files_spoil_is_named_and_proved_once_it_is_gone(rent: Rent) -> None:
    rented = rent("vast")
    box = rented.box
    rented.user.repository(boxstrap__yaml=PROFILE)
    rented.user.env["API_KEY"] = SECRET
    rented.user.agree()
    before = {name: box.read(f"/root/{name}") for name in (".bashrc", ".profile")}
    box.write("/root/.bashrc", before[".bashrc"] + SPOILED)
    box.write("/root/.profile", before[".profile"] + SILENT)
    first = rented.run("setup").must(0)
    line = 1 + box.read("/root/.bashrc").splitlines().index("export WANDB_MODE=offline")
    assert f"WANDB_MODE: another value in VS Code. It is set again in ~/.bashrc:{line}" in first.err
    assert "names: missing in VS Code. Start-up files of bash" in first.err
    assert "no answer from a shell in run's tmux, other tmux" in first.err
    assert not [name for name in ("GREETING:", "API_KEY:") if name in first.err]

    # A setup with nothing to do does not repeat it; `verify` does, also with --json.
    again = rented.run("setup").must(0)
    assert "nothing to do" in again.out
    assert "WANDB_MODE" not in again.text
    failed = rented.run("verify", "--environment", "--json").must(7).json()
    (ours,) = (each for each in failed["environment"]["variables"] if each["name"] == "names")
    assert ours["found"] == {
        **dict.fromkeys(WAYS, "right"),
        "tmux": "no answer",
        "own-tmux": "no answer",
        "vscode": "missing",
    }

    for name, text in before.items():
        box.write(f"/root/{name}", text)
    missing = rented.run("verify", "--environment").must(7)
    assert "GREETING: missing in ssh host cmd, login shell" in missing.err  # without our own line
    rented.run("setup").must(0)
    changed = rented.run("verify", "--environment", "--set", "env.names=theirs").must(7)
    assert "names: another value in" in changed.err
    assert "The box doesn't have this profile's value yet: boxstrap setup --host" in changed.err
    listing = "find /workspace/.boxstrap /tmp -printf '%p\\n' | sort"
    there = box.run(listing)
    proved = rented.run("verify", "--environment").must(0)
    assert "The environment is as the profile says (bash)." in proved.out
    assert box.run(listing) == there
    for done in (first, missing, changed, proved):
        assert "key-7f1c" not in done.text
