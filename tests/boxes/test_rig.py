"""The rig itself: each kind is as described, every fault takes effect, nothing is left behind."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.boxes import RigBox, claims
from tests.boxes.proc import REPOSITORY

pytestmark = [pytest.mark.boxes, pytest.mark.sampled(of="module")]

Start = Callable[..., RigBox]

ASIDE = (200, 220)
"""High subnet numbers, which no parallel rig takes as soon as they are free."""


def ssh(
    box: RigBox, command: str, *more: str, timeout: float = 30
) -> subprocess.CompletedProcess[str]:
    argv = box.ssh_command(command)
    argv[1:1] = more
    return subprocess.run(
        argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=timeout, check=False
    )


TOOLS = ("python3", "git", "curl", "tmux", "rsync", "sudo", "wget", "uv")

HAS = {
    "bare": set(),
    "vast": {"python3", "git", "curl", "tmux", "rsync", "wget", "uv"},
    "vast-nouv": {"python3", "git", "curl", "tmux", "rsync", "wget"},
    "runpod": {"python3", "git", "curl"},
    "lambda": {"python3", "git", "curl", "tmux", "rsync", "sudo", "wget"},
    "nosudo": {"python3", "git"},
}


@pytest.mark.parametrize("kind", HAS)
def test_each_kind_of_test_box_has_exactly_the_tools_it_lists(box: Start, kind: str) -> None:
    made = box(kind)
    done = ssh(
        made, f"for t in {' '.join(TOOLS)}; do command -v $t >/dev/null && echo has:$t; done"
    )
    found = {line[4:] for line in done.stdout.splitlines() if line.startswith("has:")}
    assert found == HAS[kind]


def test_test_boxes_share_no_files_processes_or_rights_with_one_another(box: Start) -> None:
    one, two = box("bare"), box("bare")
    one.write("/root/mark", "one")
    assert not two.exists("/root/mark")
    assert one.run("hostname") != two.run("hostname")
    assert len(one.run("ls -d /proc/[0-9]*").split()) < 8
    assert ssh(one, "date -s 2001-01-01").returncode != 0
    assert ssh(one, "mount -t tmpfs none /mnt").returncode != 0


def test_the_listing_of_a_test_box_shows_a_new_file_and_no_change_by_a_login(box: Start) -> None:
    made = box("vast")
    ssh(made, "true")
    before = made.listing(["/root", "/workspace", "/etc"])
    ssh(made, "true")
    assert made.listing(["/root", "/workspace", "/etc"]) == before
    made.run("touch /workspace/new")
    assert made.listing(["/root", "/workspace", "/etc"]) != before


def test_a_test_rig_whose_owner_was_killed_leaves_no_box_folder_or_bridge_behind() -> None:
    script = (
        "import time\nfrom tests.boxes import Rig\n"
        f"rig = Rig(lowest={ASIDE[0]})\nbox = rig.start('bare')\n"
        "print(box.address, box._init, rig._claim.folder, flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as owner:
        assert owner.stdout is not None
        address, init, folder = owner.stdout.readline().split()
        owner.send_signal(signal.SIGKILL)
    bridge = f"bxr{address.split('.')[2]}"
    for _ in range(100):
        if not Path(f"/proc/{init}").exists():
            break
        time.sleep(0.05)
    assert not Path(f"/proc/{init}").exists()  # the box died with its owner
    assert int(address.split(".")[2]) in claims.sweep()
    assert not Path(folder).exists()
    assert not traces(bridge)


def traces(bridge: str) -> list[str]:
    """Return the network cards and packet rules of a rig, by the name of its bridge."""
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True)
    cards = [card.name for card in Path("/sys/class/net").iterdir()]
    own = re.compile(rf"{bridge}(b\d+)?")
    return [name for name in cards + tables.stdout.split() if own.fullmatch(name)]
