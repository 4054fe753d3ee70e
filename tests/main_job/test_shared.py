"""After a contact the connection stays: later commands and exec go over it, `ssh NAME` does not."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.main_job.rented import Rented
from tests.main_job.settled import Settled
from tests.main_job.used import start_used
from tests.plain_environment import BIN
from tests.waiting import wait_until


@pytest.fixture
def rented(mirror_rig: Rig, shared_folder: Path) -> Iterator[Rented]:
    user = Settled()
    user.env["BOXSTRAP_KEEP_OPEN"] = "2m"
    box = start_used(mirror_rig, "vast", shared_folder)
    yield Rented(user, box)
    user.leave()
    box.stop()


def logins(rented: Rented) -> int:
    return rented.box.read("/var/log/sshd.log").count("Accepted publickey")


def connected(rented: Rented) -> list[str]:
    found = rented.user.run("boxes", "--json").must(0).json()["boxes"]
    return [box["name"] for box in found if box["connected"]]


def test_commands_after_the_first_use_its_open_connection_and_do_not_log_in_again(
    rented: Rented,
) -> None:
    user = rented.user
    assert isinstance(user, Settled)
    repository = user.repository()
    rented.run("setup", "--name", "my-box").must(0)
    wait_until(lambda: connected(rented) == ["my-box"])
    before = logins(rented)
    assert "step 1 loss" in rented.run("logs").must(0).out
    assert "nothing to do" in rented.run("setup").must(0).out
    repository.write({"train.py": "print('step 9', flush=True)\n"})
    rented.run("sync").must(0)
    assert "step 9" in rented.run("run").must(0).out
    assert "train-2" in user.run("status").must(0).out
    assert user.run("exec", "--", "echo", "there").must(0).out == "there\n"
    with _exec(user, "echo on >&2; sleep 100") as began:
        assert began.stderr is not None
        assert began.stderr.readline() == b"on\n"
        os.killpg(began.pid, signal.SIGINT)
        interrupted = time.monotonic()
        began.stderr.read()  # until nobody has it open any more
        assert time.monotonic() - interrupted < 20
    assert began.returncode == 130
    assert logins(rented) == before
    assert user.ssh("my-box", "echo", "here") == "here\n"
    assert logins(rented) == (before := before + 1)
    assert "open to my-box" in user.run("doctor").text
    assert rented.user.run("boxes").must(0).out.count(", connected") == 1
    host_key = ("--host-key", rented.box.known_fingerprint)
    rented.run("plan", *host_key).must(0)  # it is compared at a login
    assert logins(rented) == before + 1
    user.run("status", BOXSTRAP_KEEP_OPEN="0").must(0)
    assert logins(rented) == before + 2
    # Another name is the same box, over the same connection; the first one still leads to it.
    for other in ("plan", "verify", "run"):
        told = rented.run(other, "--name", "nina").must(2).err
        assert "my-box would be renamed, which only a setup does" in told, other
    assert "my-box is called nina now" in rented.run("setup", "--name", "nina").must(0).err
    assert logins(rented) == before + 2
    assert connected(rented) == ["nina"]
    assert "train-2" in user.run("status", "--host", "my-box").must(0).out
    assert {run["box"] for run in user.run("runs", "--json").must(0).json()["runs"]} == {"nina"}
    assert user.ssh("nina", "echo", "here") == "here\n"
    user.run("secrets", "--host", "my-box", "--wipe").must(0)
    assert connected(rented) == []
    user.run("status").must(0)
    wait_until(lambda: connected(rented))
    user.run("boxes", "--forget", "nina").must(0)
    wait_until(lambda: "[mux]" not in _masters(user))


def _exec(user: Settled, script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [BIN / "boxstrap", "exec", "--", "sh", "-c", script],
        cwd=user.place,
        env=user.env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _masters(user: Settled) -> str:
    commands = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists())
    found = (line.decode(errors="replace") for line in commands)
    return "\n".join(line for line in found if str(user.home) in line)


def test_ssh_keep_open_in_a_profile_sets_how_long_the_login_stays_open(rented: Rented) -> None:
    del rented.user.env["BOXSTRAP_KEEP_OPEN"]
    rented.user.repository(
        boxstrap__yaml="version: 1\ngpu: {require: false}\nssh: {keep_open: 0}\n"
    )
    rented.run("setup", "--name", "my-box").must(0)
    rented.run("status").must(0)
    time.sleep(1)
    assert connected(rented) == []
    rented.run("setup", "--set", "ssh.keep_open=1s").must(0)
    wait_until(lambda: not connected(rented) and logins(rented) >= 4)


def test_pull_of_small_results_uses_the_open_connection_and_pull_of_17_mb_a_new_login(
    rented: Rented,
) -> None:
    profile = "version: 1\ngpu: {require: false}\ntrain: {command: %s, results: [out/]}\n"
    makes = "mkdir -p out && head -c {} /dev/zero >out/a"
    root = rented.user.repository(
        boxstrap__yaml=profile % makes.format(9), **{".gitignore": "out/\n"}
    ).root
    rented.run("setup", "--name", "my-box").must(0)
    wait_until(lambda: connected(rented) == ["my-box"])
    before = logins(rented)
    for number, size in enumerate((9, 17_000_000)):
        if number:
            rented.run("run", "--", "sh", "-c", makes.format(size)).must(0)
        rented.run("wait").must(0)
        rented.run("pull").must(0)
        (pulled,) = root.glob(f"boxstrap-results/*/train-{number + 1}/out/a")
        assert pulled.stat().st_size == size
        assert logins(rented) == before + number
