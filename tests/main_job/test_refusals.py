"""What stops a command before anything is changed, and the exit code that says why."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.cli import User
from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.waiting import slowness

pytestmark = [pytest.mark.boxes, pytest.mark.sampled(of="module")]


@pytest.fixture
def rented(rent: Rent) -> Rented:
    """A fresh box, and a repository."""
    rented = rent("vast")
    rented.user.repository()
    return rented


def untouched(rented: Rented) -> None:
    assert not rented.box.exists("/root/.boxstrap")
    assert not rented.box.exists("/workspace/.boxstrap")
    assert not rented.box.exists("/root/.no_auto_tmux")


def test_a_file_that_looks_like_a_credential_is_2_unless_the_commit_is_enough(
    rented: Rented,
) -> None:
    (rented.user.place / "train.py").write_text("print('uncommitted')\n")
    (rented.user.place / ".env").write_text("TOKEN=canary\n")
    for task in ("setup", "plan"):
        refused = rented.run(task).must(2)
        assert "  .env  (environment file)" in refused.err
        assert ".gitignore" in refused.err
        assert "canary" not in refused.text
    untouched(rented)
    taken = rented.run("setup", "--committed-only").must(0)
    assert "step 1 loss" in taken.out
    assert not rented.box.exists(f"{rented.tree}/.env")


def test_a_changed_host_key_is_4_and_nothing_is_sent(rented: Rented, faults: Faults) -> None:
    rented.run("doctor").must(0)
    rented.run("setup", "--set", "gpu.require=true").must(6)
    rented.box.new_host_key()
    before = rented.listing()
    for task in ("setup", "plan", "status", "logs"):
        with faults.attempt("changed host key", task) as attempt:
            refused = rented.run(task).must(4)
            attempt.noticed(refused.seconds, at_most=20)
            assert rented.box.known_fingerprint in refused.err
            assert "--new-box" in refused.err
            attempt.outcome("exit 4, nothing sent")
    assert rented.listing() == before


TOKEN = "hf_" + "k" * 34
SECRET = ("--set", "secrets=[HF_TOKEN]")
# First contacts: the command, its exit code and options.
VAST = ("--profile", "vast")  # so the box is not asked for its provider, which is not saved then
FIRST: dict[str, tuple[int, tuple[str, ...]]] = {
    "verify": (6, VAST),
    "setup, 5": (5, (*VAST, "--set", "box.workdir=/proc/nowhere")),
    "setup, 6": (6, VAST),
    "setup, 7": (
        7,
        (*VAST, "--set", "gpu.require=false", "--set", "python.requirements=[none.txt]"),
    ),
    "status": (0, ()),
    "logs": (2, ()),
    "plan": (0, ()),
    "doctor": (0, ()),
    "top": (5, ("--looks", "1")),
}


@pytest.mark.sampled
@pytest.mark.parametrize("first", FIRST)
def test_whatever_came_of_the_first_contact_a_changed_key_is_4(
    rented: Rented, faults: Faults, first: str
) -> None:
    code, words = FIRST[first]
    rented.run(first.partition(",")[0], *words).must(code)
    _changed_key_gets_nothing(rented, faults, first)


def test_a_first_contact_that_was_interrupted_has_pinned_the_key(
    rented: Rented, faults: Faults
) -> None:
    going = rented.begin("setup", "--set", "packages=[ffmpeg]")
    going.await_said("pinned its host key")
    going.interrupt()
    going.end().must(130)
    rented.run("stop", "--setup")
    _changed_key_gets_nothing(rented, faults, "Ctrl-C")


def _changed_key_gets_nothing(rented: Rented, faults: Faults, first: str) -> None:
    old = rented.box.known_fingerprint
    rented.box.new_host_key()
    before = rented.listing()
    with faults.attempt("changed host key", f"after {first}") as attempt:
        refused = rented.run("setup", *SECRET, HF_TOKEN=TOKEN).must(4)
        attempt.noticed(refused.seconds, at_most=20)
        assert old in refused.err
        attempt.outcome("exit 4, nothing sent")
    assert rented.listing() == before
    assert len(list((rented.user.state / "boxes").iterdir())) == 1


def test_a_known_box_whose_record_is_lost_is_4_and_the_ways_out_lead_out(
    rented: Rented, faults: Faults
) -> None:
    rented.run("verify").must(0)
    (folder,) = (rented.user.state / "boxes").iterdir()
    (folder / "box.json").write_text("")
    old = rented.box.known_fingerprint
    before = rented.listing()
    with faults.attempt("changed host key", "the box's record lost") as attempt:
        refused = rented.run("setup", *SECRET, HF_TOKEN=TOKEN).must(4)
        attempt.outcome("exit 4, nothing sent")
    assert rented.listing() == before
    assert "--new-box" in refused.err
    assert f"boxstrap boxes --forget {folder.name}" in refused.err
    assert f"--host-key {old}" in refused.err
    listed = rented.user.run("boxes").must(0)
    assert f"{folder.name}" in listed.out
    assert "can't be read" in listed.out
    told = rented.user.run("boxes", "--forget", folder.name).must(0)
    assert "its pinned host key" in told.out
    rented.run("setup", "--host-key", old).must(0)
    assert rented.status()["runs"]


def test_a_new_box_at_an_old_address_has_a_pin_of_its_own(rented: Rented, faults: Faults) -> None:
    rented.run("setup").must(0)
    rented.box.new_host_key()
    with faults.attempt("same address, new box") as attempt:
        rented.run("setup").must(4)
        rented.run("setup", "--new-box").must(0)
        rented.run("setup").must(0)
        attempt.outcome("own alias, old pin kept")
    names = [box["name"] for box in rented.user.run("boxes", "--json").must(0).json()["boxes"]]
    assert names == [f"{rented.box.address}-22-2", f"{rented.box.address}-22"]
    pins = {(rented.user.state / f"boxes/{name}/known_hosts").read_text() for name in names}
    assert len(pins) == 2


def test_another_host_key_than_the_one_given_is_4(rented: Rented) -> None:
    wrong = f"SHA256:{'A' * 43}"
    refused = rented.run("setup", "--host-key", wrong).must(4)
    assert rented.box.known_fingerprint in refused.err
    untouched(rented)
    assert rented.user.run("boxes", "--json").json()["boxes"] == []
    rented.run("setup", "--host-key", rented.box.known_fingerprint).must(0)


def test_an_unreachable_host_is_3(user: User) -> None:
    user.repository()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    refused = user.run("setup", "--host", f"root@127.0.0.1:{port}").must(3)
    assert f"127.0.0.1:{port}" in refused.err
    unknown = user.run("setup", "--host", "root@no-such-host.invalid").must(3)
    assert "no-such-host.invalid" in unknown.err
    assert len(refused.err.splitlines()) < 12


def test_a_cut_cable_is_3_in_good_time(rented: Rented, faults: Faults) -> None:
    with faults.attempt("box unreachable from the start") as attempt:
        rented.box.blackhole()
        refused = rented.run("setup").must(3)
        attempt.noticed(refused.seconds, at_most=40)
        assert rented.box.address in refused.err
        attempt.outcome("exit 3")


def test_a_refused_key_is_3_with_the_public_key_to_paste(rented: Rented) -> None:
    key = rented.user.home / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = Path(f"{key}.pub").read_text().split()[1]
    host = ["--host", rented.box.host_string, "--identity", str(key)]
    refused = rented.user.run("setup", *host).must(3)
    assert public in refused.err
    assert "~/other" in refused.err
    untouched(rented)


def test_no_gpu_where_one_is_required_is_6_and_nothing_is_built(rented: Rented) -> None:
    refused = rented.run("setup", "--set", "gpu.require=true").must(6)
    assert "Nothing was built. Return this box" in refused.err
    assert refused.text.lower().count("return this box") == 1
    assert not rented.box.exists("/workspace/homework/.venv")
    assert not rented.box.exists("/root/.boxstrap/runs")
    # --json has the verdict too.
    told = rented.run("setup", "--set", "gpu.require=true", "--json").must(6).json()
    assert (told["exit"], told["verdict"]["verdict"]) == (6, "return")


def test_a_box_that_lacks_a_place_to_write_is_5_and_stays_as_it_was(rent: Rent) -> None:
    rented = rent("nosudo")
    rented.user.repository()
    before = rented.listing()
    refused = rented.run("setup", "--set", "box.workdir=/opt/work").must(5)
    assert "/opt" in refused.err
    assert "Nothing was changed" in refused.err
    assert rented.listing() == before


def test_a_wrong_profile_is_2_before_any_network(user: User) -> None:
    user.repository(boxstrap__yaml="version: 1\npythn: {version: '3.11'}\n")
    refused = user.run("setup", "--host", "root@203.0.113.1").must(2)
    assert "boxstrap.yaml:2" in refused.err
    assert "python" in refused.err
    assert refused.seconds < 10 * slowness()


def test_a_missing_secret_is_2_and_one_that_is_there_is_nowhere_but_in_its_file(
    rented: Rented,
) -> None:
    (rented.user.place / "boxstrap.yaml").write_text(
        "version: 1\ngpu: {require: false}\nsecrets: [RIG_TOKEN]\n"
        "train: {command: python train.py}\n"
    )
    env = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z"}
    subprocess.run(
        ["git", "commit", "-aqm", "Name a secret"],
        cwd=rented.user.place,
        env={**os.environ, **rented.user.env, **env},
        check=True,
    )
    refused = rented.run("setup", RIG_TOKEN="x").must(2)
    assert "  secret      RIG_TOKEN\n" in refused.err
    untouched(rented)
    rented.user.agree()
    refused = rented.run("setup").must(2)
    assert "export RIG_TOKEN" in refused.err
    untouched(rented)
    canary = "canary-7d3f0e5b1c"
    (rented.user.place / "train.py").write_text(
        "import os\nprint('step 1', os.environ['RIG_TOKEN'])\n"
    )
    done = rented.run("setup", "--committed-only", RIG_TOKEN=canary).must(0)
    assert canary not in done.text
    assert "secrets    RIG_TOKEN" in done.err
    found = rented.box.run(f"grep -rls {canary} / --exclude-dir=proc --exclude-dir=sys || true")
    folder = rented.folder
    named = set(found.split())
    assert f"{folder}/env" in named
    assert named <= {f"{folder}/{name}" for name in ("env", "env.fish", "env.csh", "secrets")}
    modes = rented.box.run(f"stat -c %a {' '.join(named)}").split()
    assert set(modes) == {"600"}
    # The brackets keep the search from finding itself.
    pattern = f"[{canary[0]}]{canary[1:]}"
    seen = rented.box.run(f"cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '{pattern}' || true")
    assert seen.strip() == "0"
    local = subprocess.run(
        ["grep", "-rls", canary, str(rented.user.home)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert local.stdout == ""


def test_another_providers_box_than_the_profiles_is_said_once(rented: Rented) -> None:
    profile = (
        "version: 1\nextends: runpod\ngpu: {require: false}\ntrain: {command: python train.py}\n"
    )
    repository = rented.user.repository("other", boxstrap__yaml=profile)
    for _ in range(2):
        done = rented.run("setup").must(0)
        warned = [line for line in done.err.splitlines() if "RunPod" in line]
        assert len(warned) == 1
        assert "--profile vast" in warned[0]
    repository.commit({"boxstrap.yaml": profile.replace("runpod", "ssh")})
    done = rented.run("setup").must(0)
    assert "--profile vast" not in done.err
    assert "still billing" not in done.out  # nobody said that it is rented
