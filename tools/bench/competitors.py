"""The competitors, and what the user of each one types. Their files are in `peers/`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.bench.clock import TimedCall
from tools.bench.stage import PEERS, Stage, StagePlace

Calls = Callable[[Stage, StagePlace], Sequence[TimedCall]]


@dataclass(frozen=True)
class Competitor:
    """One way from a fresh box to a running training."""

    key: str
    name: str
    kind: str
    """The kind of box that it gets."""
    log: str
    """A glob pattern of its training's log on the box."""
    calls: Calls
    """The commands, in order."""
    can_repeat: bool = True


def _boxstrap(stage: Stage, place: StagePlace) -> Sequence[TimedCall]:
    words = ("setup", "--host", place.host, "--identity", str(place.box.identity))
    return [stage.boxstrap(*words, state=place.ssh_config.stem)]


def _hand_kept(stage: Stage, place: StagePlace) -> Sequence[TimedCall]:
    text = (PEERS / "hand_kept.sh").read_text()
    for blank, value in {
        "@PRIVATE_KEY@": place.box.identity.read_text().rstrip("\n"),
        "@GIT_HOST@": stage.git_box.address,
        "@GIT_URL@": stage.git_url,
    }.items():
        text = text.replace(blank, value)
    filled = stage.file(f"{place.box.name}-hand_kept.sh")
    filled.write_text(text)
    config = str(place.ssh_config)
    folder = "/root/homework"
    train = f"{folder}/homework-env/bin/python {folder}/train.py >{folder}/train.log 2>&1"
    return [
        TimedCall(argv, stage.environment(), stage.folder)
        for argv in (
            ["scp", "-q", "-F", config, str(filled), "box:setup.sh"],
            ["ssh", "-F", config, "box", "bash setup.sh"],
            ["ssh", "-F", config, "box", f"tmux new-session -d -s train '{train}'"],
        )
    ]


def _ansible(stage: Stage, place: StagePlace) -> Sequence[TimedCall]:
    inventory = stage.file(f"{place.ssh_config.stem}.inventory")
    inventory.write_text(f"box ansible_ssh_common_args='-F {place.ssh_config}'\n")
    values = {
        "git_url": stage.git_url,
        "private_key_file": str(place.box.identity),
        "public_key_file": f"{place.box.identity}.pub",
    }
    program = str(stage.peers_bin / "ansible-playbook")
    playbook = str(PEERS / "playbook.yml")
    sockets = stage.file(f"cp{len(list(stage.folder.glob('cp*')))}")
    env = stage.environment(
        ANSIBLE_CONFIG=str(PEERS / "ansible.cfg"),
        ANSIBLE_HOME=str(stage.file("ansible")),
        # A new login for each call, as for a user who comes back after an hour.
        ANSIBLE_SSH_CONTROL_PATH_DIR=str(sockets),
    )
    sockets.mkdir()
    return [
        TimedCall(
            [program, "-i", str(inventory), playbook, "-e", json.dumps(values)], env, stage.folder
        )
    ]


def _pyinfra(stage: Stage, place: StagePlace) -> Sequence[TimedCall]:
    values = {
        "ssh_config_file": place.ssh_config,
        "ssh_known_hosts_file": _by_address(stage, place),
        "ssh_strict_host_key_checking": "yes",
        "git_url": stage.git_url,
        "git_host": stage.git_box.address,
        "private_key_file": place.box.identity,
        "public_key_file": f"{place.box.identity}.pub",
    }
    argv = [str(stage.peers_bin / "pyinfra"), "@ssh/box", str(PEERS / "deploy.py"), "-y"]
    for name, value in values.items():
        argv += ["--data", f"{name}={value}"]
    return [TimedCall(argv, stage.environment(), stage.folder)]


def _by_address(stage: Stage, place: StagePlace) -> Path:
    """Write a known_hosts by address, because paramiko doesn't know HostKeyAlias."""
    known = stage.file(f"{place.ssh_config.stem}.pyinfra_known_hosts")
    name = place.address if place.port == 22 else f"[{place.address}]:{place.port}"
    known.write_text(f"{name} {place.box.host_key}\n")
    return known


def _bare(stage: Stage, place: StagePlace) -> Sequence[TimedCall]:
    argv = ["ssh", "-A", "-F", str(place.ssh_config), "box", f"bash -s {stage.git_url}"]
    env = stage.environment(SSH_AUTH_SOCK=stage.agent_socket)
    return [TimedCall(argv, env, stage.folder, stdin=PEERS / "bare.sh")]


def ssh_true(stage: Stage, place: StagePlace) -> TimedCall:
    """Return `ssh host true`: the minimal login."""
    argv = ["ssh", "-F", str(place.ssh_config), "box", "true"]
    return TimedCall(argv, stage.environment(), stage.folder)


_RUNS = "/workspace/.boxstrap/runs/*/*/log"
_TREE = "/workspace/homework/train.log"

BARE = Competitor("bare", "(d) bare script, uv on the box", "vast", _TREE, _bare)
BOXSTRAP = Competitor("boxstrap", "boxstrap, uv on the box", "vast", _RUNS, _boxstrap)
BOXSTRAP_NOUV = Competitor(
    "boxstrap-nouv", "boxstrap, uv fetched first", "vast-nouv", _RUNS, _boxstrap
)
HAND_KEPT = Competitor(
    "hand-kept",
    "(a) hand-kept bash file",
    "vast",
    "/root/homework/train.log",
    _hand_kept,
    can_repeat=False,
)
ANSIBLE = Competitor("ansible", "(b) Ansible, pipelining", "vast", _TREE, _ansible)
PYINFRA = Competitor("pyinfra", "(c) pyinfra", "vast", _TREE, _pyinfra)

QUICK = (BOXSTRAP, BARE, BOXSTRAP_NOUV)
SLOW = (HAND_KEPT, ANSIBLE, PYINFRA)
