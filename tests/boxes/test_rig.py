"""The rig itself: each kind is as described, every fault takes effect, nothing is left behind."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urljoin

import pytest

from tests.boxes import CommandError, Rig, RigBox, RigError, claims
from tests.boxes.places import CLAIMS
from tests.boxes.proc import REPOSITORY
from tests.waiting import slowness, wait_until

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
def test_a_kind_has_the_tools_it_says_and_no_others(box: Start, kind: str) -> None:
    made = box(kind)
    done = ssh(
        made, f"for t in {' '.join(TOOLS)}; do command -v $t >/dev/null && echo has:$t; done"
    )
    found = {line[4:] for line in done.stdout.splitlines() if line.startswith("has:")}
    assert found == HAS[kind]


@pytest.mark.parametrize("kind", ["bare", "vast", "runpod"])
def test_root_logs_in_where_the_provider_has_it_so(box: Start, kind: str) -> None:
    assert "uid=0(root)" in ssh(box(kind), "id").stdout


@pytest.mark.parametrize("kind", ["lambda", "nosudo"])
def test_root_is_refused_where_it_is_not(box: Start, kind: str) -> None:
    made = box(kind)
    argv = [word.replace(f"{made.user}@", "root@") for word in made.ssh_command("id")]
    refused = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert refused.returncode == 255
    assert "Permission denied" in refused.stderr
    assert f"({made.user})" in ssh(made, "id").stdout


def test_vast_is_a_vast_container(box: Start) -> None:
    made = box("vast")
    done = ssh(made, "printenv CONTAINER_ID; echo shell is up")
    assert done.stdout == "21843570\nshell is up\n"
    # Auto-tmux; sometimes its server exits before it says why.
    refusals = ("open terminal failed: not a terminal", "server exited unexpectedly")
    assert any(words in done.stderr for words in refusals)
    assert "VAST_CONTAINERLABEL=C.21843570" in made.run("tr '\\0' '\\n' </proc/1/environ")
    assert made.run(["/venv/main/bin/python", "-c", "print(1)"]) == "1\n"
    assert made.exists("/workspace")
    made.write("/root/.no_auto_tmux", "")
    assert ssh(made, "true").stderr == ""


def test_runpod_prints_its_banner_into_every_command(box: Start) -> None:
    done = ssh(box("runpod"), "printenv RUNPOD_POD_ID")
    assert done.stdout.endswith("k3x0rigpod7a1b\n")
    assert "|_| " in done.stdout


def test_lambda_has_sudo_that_asks_nothing(box: Start) -> None:
    assert "uid=0" in ssh(box("lambda"), "sudo -n id").stdout


@pytest.mark.parametrize(("kind", "shell"), [("fish", "fish"), ("tcsh", "tcsh")])
def test_other_login_shells(box: Start, kind: str, shell: str) -> None:
    assert ssh(box(kind), "echo $SHELL").stdout.strip().endswith(shell)


def test_homes_and_disks_of_variants(box: Start) -> None:
    assert "Read-only" in ssh(box("rohome"), "touch ~/x").stderr
    assert "tmpfs" in ssh(box("tmpfshome"), "df ~").stdout
    full = ssh(box("smalldisk"), "head -c 400M /dev/zero >/workspace/x")
    assert "No space left on device" in full.stderr


def test_processes_of_a_login_outlive_it_and_are_reaped(box: Start) -> None:
    made = box("vast")
    ssh(made, "setsid sh -c 'sleep 0.5 & sleep 300' >/dev/null 2>&1 </dev/null &")
    ssh(made, "tmux -L own new-session -d -s work 'sleep 400'")
    seen: Callable[[], str] = lambda: made.run("ps -eo stat,args")  # noqa: E731
    wait_until(lambda: "sleep 300" in (found := seen()) and "sleep 400" in found, seen)
    time.sleep(1)  # its first child has ended
    assert "defunct" not in seen()


def test_boxes_are_apart_from_each_other_and_from_us(box: Start) -> None:
    one, two = box("bare"), box("bare")
    one.write("/root/mark", "one")
    assert not two.exists("/root/mark")
    assert one.run("hostname") != two.run("hostname")
    assert len(one.run("ls -d /proc/[0-9]*").split()) < 8
    assert ssh(one, "date -s 2001-01-01").returncode != 0
    assert ssh(one, "mount -t tmpfs none /mnt").returncode != 0


def test_a_listing_shows_any_change(box: Start) -> None:
    made = box("vast")
    ssh(made, "true")
    before = made.listing(["/root", "/workspace", "/etc"])
    ssh(made, "true")
    assert made.listing(["/root", "/workspace", "/etc"]) == before
    made.run("touch /workspace/new")
    assert made.listing(["/root", "/workspace", "/etc"]) != before


def test_power_off_keeps_the_files_and_ends_the_processes(box: Start) -> None:
    made = box("vast")
    made.write("/workspace/kept", "yes")
    made.run("setsid sleep 500 >/dev/null 2>&1 &")
    made.power_off()
    assert not made.is_on
    assert ssh(made, "true").returncode == 255
    with pytest.raises(RigError, match="is off"):
        made.run("true")
    made.power_on()
    assert ssh(made, "cat /workspace/kept").stdout == "yes"
    assert "sleep 500" not in made.run("ps -eo args")


def test_a_new_host_key_is_noticed_by_the_real_client(box: Start) -> None:
    made = box("bare")
    known = made.ssh_command("true")
    before = made.known_fingerprint
    assert subprocess.run(known, check=False).returncode == 0
    pins = Path(next(word for word in known if word.startswith("UserKnown")).partition("=")[2])
    old = pins.read_text()
    made.new_host_key()
    public = made.run("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
    assert made.known_fingerprint in public.split()
    assert made.known_fingerprint != before
    pins.write_text(old)
    done = subprocess.run(known, capture_output=True, text=True, check=False)
    assert "HOST IDENTIFICATION HAS CHANGED" in done.stderr
    assert ssh(made, "true").returncode == 0  # ssh_command() knows the new one


def test_sshd_dies_and_what_it_started_lives(box: Start) -> None:
    made = box("vast")
    ssh(made, "setsid sleep 600 >/dev/null 2>&1 </dev/null &")
    made.kill_sshd()
    assert ssh(made, "true").returncode == 255
    assert "sleep 600" in made.run("ps -eo args")
    made.start_sshd()
    assert ssh(made, "true").returncode == 0


def test_boxes_reach_the_package_index_and_debian(box: Start) -> None:
    made = box("vast")
    assert "six" in made.run("/venv/main/bin/pip download --no-deps -d /tmp/d six && ls /tmp/d")
    assert "Candidate" in made.run("apt-get -q update >/dev/null && apt-cache policy tree")


def test_a_box_comes_up_in_less_than_a_second(rig: Rig) -> None:
    rig.start("bare").stop()  # its layers exist now
    start = time.monotonic()
    rig.start("bare").stop()
    assert time.monotonic() - start < slowness()


def test_the_mirror_serves_pip_uv_and_apt_and_breaks_on_order(mirror_rig: Rig) -> None:
    made = mirror_rig.start("vast")
    url = mirror_rig.mirror.index_url
    pip = "/venv/main/bin/pip --no-cache-dir install --force-reinstall --no-deps --retries 0"
    assert url in made.run(f"{pip} -v six")
    assert "six" in made.run(f"uv pip install --index-url {url} -p /venv/main --reinstall six 2>&1")
    assert "tree" in made.run("apt-get -q update && apt-get -q install -y tree")
    page = urllib.request.Request(f"{url}six/", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(page) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
    json_page = urllib.request.Request(
        f"{url}six/", headers={"Accept": "application/vnd.pypi.simple.v1+json"}
    )
    with urllib.request.urlopen(json_page) as answer:
        wheel = next(f for f in json.load(answer)["files"] if f["filename"].endswith(".whl"))
    place = urljoin(f"{url}six/", wheel["url"])
    with urllib.request.urlopen(f"{place}.metadata") as answer:
        assert b"Name: six" in answer.read()
    part = urllib.request.Request(place, headers={"Range": "bytes=0-1"})
    with urllib.request.urlopen(part) as answer:
        assert (answer.status, answer.read()) == (206, b"PK")
    fetch = f"curl -sSf -m 1 -o /dev/null {url}six/"
    mirror_rig.mirror.break_with(503)
    with pytest.raises(CommandError, match="503"):
        made.run(fetch)
    mirror_rig.mirror.stall()
    with pytest.raises(CommandError, match="timed out"):
        made.run(fetch)
    mirror_rig.mirror.mend()
    made.run(fetch)
    made.stop()


def test_nothing_is_left_behind_even_by_an_owner_that_was_killed() -> None:
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


def test_closing_a_rig_removes_everything() -> None:
    with Rig(lowest=ASIDE[1]) as own:
        made = own.start("vast")
        made.blackhole()
        subnet, folder = own._claim.subnet, own._claim.folder
        assert traces(subnet.bridge)
    assert not folder.exists()
    assert not (CLAIMS / str(subnet.number)).exists()
    assert str(folder) not in Path("/proc/mounts").read_text()
    assert not traces(subnet.bridge)


def traces(bridge: str) -> list[str]:
    """Return the network cards and packet rules of a rig, by the name of its bridge."""
    tables = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True)
    cards = [card.name for card in Path("/sys/class/net").iterdir()]
    own = re.compile(rf"{bridge}(b\d+)?")
    return [name for name in cards + tables.stdout.split() if own.fullmatch(name)]
