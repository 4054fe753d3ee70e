"""`boxstrap code`: the repository on a box in an editor. A stub stands in for the editor."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.runs.jsonc import read_jsonc
from tests.boxes import Rig
from tests.main_job.rented import Rented
from tests.main_job.settled import Settled
from tests.main_job.used import start_used

SETTINGS = ".vscode-server/data/Machine/settings.json"


@pytest.fixture(scope="module")
def rented(mirror_rig: Rig, shared_folder: Path) -> Iterator[Rented]:
    """A box that was set up; its user's PATH has no editor."""
    user = Settled()
    user.repository()
    box = start_used(mirror_rig, "vast", shared_folder)
    rented = Rented(user, box)
    rented.run("setup", "--name", "My-Box").must(0)
    yield rented
    user.leave()
    box.stop()


@pytest.fixture
def user(rented: Rented) -> Settled:
    assert isinstance(rented.user, Settled)
    return rented.user


def editor(user: Settled, name: str, rc: int = 0) -> Path:
    """A program of that name that writes its arguments to the returned file."""
    folder = user.home / "programs"
    folder.mkdir(exist_ok=True)
    said = user.home / f"{name}.said"
    (folder / name).write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{said}\nexit {rc}\n')
    (folder / name).chmod(0o755)
    return said


def test_code_prints_a_link_when_no_editor_is_installed(user: Settled, rented: Rented) -> None:
    """URIs lose capitals, so the link uses the lower-case alias that ssh knows too."""
    told = user.run("code", "--host", "My-Box").must(0)
    assert "vscode://vscode-remote/ssh-remote+my-box/workspace/homework" in told.out
    assert "no program code here" in told.out
    settings = read_jsonc(rented.box.read(f"/root/{SETTINGS}"))
    assert isinstance(settings, dict)
    assert settings["python.defaultInterpreterPath"] == "${workspaceFolder}/.venv/bin/python"
    # A box of the rig has as much disk space as this machine has left.
    free = int(rented.box.run("df --output=avail -k /root | tail -n 1"))
    lacking = [lack["code"] for lack in _told(user)["lacks"]]
    assert lacking == (["disk"] if free < 1_000_000 else [])
    assert user.ssh("my-box", "hostname").strip() == rented.box.name


def test_code_opens_the_tree_of_the_box_in_an_editor_here(user: Settled, rented: Rented) -> None:
    said = editor(user, "cursor")
    (user.home / ".config/Cursor").mkdir(parents=True)
    path = f"{user.home}/programs:{user.env['PATH']}"
    told = user.run("code", "--editor", "cursor", "--json", PATH=path).must(0).json()
    assert told["opened"] is True
    assert said.read_text().splitlines() == [
        "--folder-uri",
        "vscode-remote://ssh-remote+my-box/workspace/homework",
    ]
    local = json.loads((user.home / ".config/Cursor/User/settings.json").read_text())
    assert local["remote.SSH.remotePlatform"] == {"my-box": "linux"}
    assert rented.box.exists("/root/.cursor-server/data/Machine/settings.json")
    editor(user, "cursor", rc=3)
    failed = user.run("code", "--editor", "cursor", PATH=path).must(0)
    assert "exit code 3" in failed.err
    assert "cursor://vscode-remote/ssh-remote+my-box/workspace/homework" in failed.out


def test_editor_terminals_on_a_box_use_the_built_environment(user: Settled, rented: Rented) -> None:
    """Even if the image's own start-up file activates another environment, as Vast.ai's do."""
    rented.box.run(f"rm /root/{SETTINGS}")
    user.run("code", "--host", "My-Box").must(0)
    settings = read_jsonc(rented.box.read(f"/root/{SETTINGS}"))
    assert isinstance(settings, dict)
    values = settings["terminal.integrated.env.linux"]
    folder = "/workspace/homework"
    filled = {
        name: value.replace("${workspaceFolder}", folder).replace("${env:PATH}", "$PATH")
        for name, value in values.items()
    }
    rented.box.write("/tmp/prompt", filled["PROMPT_COMMAND"])
    asked = (
        f'cd {folder}; export PATH="{filled["PATH"]}" PROMPT_COMMAND="$(cat /tmp/prompt)";'
        'printf "command -v python\\nexit\\n" | bash -i 2>/dev/null'
    )
    assert rented.ssh(asked).strip().splitlines()[-1] == f"{folder}/.venv/bin/python"


def _told(user: Settled) -> dict:  # type: ignore[type-arg]
    return user.run("code", "--host", "My-Box", "--json").must(0).json()
