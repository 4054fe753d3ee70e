"""The box's cloud gives notice that it takes the box away: the run saves its work and ends."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.boxes import RigBox
from tests.boxes.metadata_server import MetadataServer
from tests.cli import NO_GPU
from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.waiting import slowness, wait_until

PROFILE = NO_GPU + "train: {command: python train.py, results: [out/], grace: 600}\n"
TRAIN = """\
import signal, sys, time
from pathlib import Path

def save(*_):
    Path("out/asked").write_text(str(time.time()))
    if Path("stubborn").exists():
        return
    Path("out/checkpoint").write_text("step 7")
    print("saved", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print("step 1", flush=True)
while True:
    if Path("save-now").exists():
        Path("save-now").unlink()
        Path("out/saved").write_text(str(time.time()))
    time.sleep(0.05)
"""
Serve = Callable[[RigBox, str], MetadataServer]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    servers: list[MetadataServer] = []

    def start(box: RigBox, cloud: str) -> MetadataServer:
        servers.append(MetadataServer(box, cloud, tmp_path))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def train(rent: Rent, serve: Serve, cloud: str, profile: str = PROFILE) -> tuple[Rented, Any]:
    """Rent a box of this cloud, and train there until its monitor has seen the service."""
    rented = rent("vast", used=True)
    server = serve(rented.box, cloud)
    rented.user.repository(boxstrap__yaml=profile, train__py=TRAIN, **{".gitignore": "out/\n"})
    rented.run("setup").must(0)
    requests = {"ec2": 3, "gcp": 2, "azure": 5}[cloud]
    wait_until(lambda: len(server.asked) >= requests, lambda: server.asked)
    return rented, server


def at(rented: Rented, name: str) -> float:
    """Return the time in a file that the run writes."""
    place = f"{rented.tree}/out/{name}"
    return float(wait_until(lambda: rented.box.exists(place) and rented.box.read(place)))


@pytest.mark.sampled
@pytest.mark.parametrize(("cloud", "at_most"), [("ec2", 6.0), ("gcp", 2.0), ("azure", 2.0)])
def test_a_run_is_asked_to_end_in_time_when_the_cloud_gives_notice_and_status_says_why(
    rent: Rent, serve: Serve, faults: Faults, cloud: str, at_most: float
) -> None:
    rented, server = train(rent, serve, cloud)
    with faults.attempt("box taken away by its cloud", at=cloud) as attempt:
        told = server.interrupt(20)
        took = at(rented, "asked") - told
        print(f"{cloud}: {took:.2f} s from the notice to SIGTERM")
        attempt.noticed(took, at_most=at_most)
        (run,) = _over(rented)
    assert (run["state"], run["rc"]) == ("finished", 0)
    by, seen, leaves = run["ended"].removeprefix("interrupted ").split()
    assert by == cloud
    assert 0 <= int(seen) - int(told) <= at_most * slowness()
    assert 9 <= int(leaves) - int(seen) <= 30
    assert rented.box.read(f"{rented.tree}/out/checkpoint") == "step 7"
    status = rented.run("status").must(0).out
    title = {"ec2": "EC2", "gcp": "Google Cloud", "azure": "Azure"}[cloud]
    assert f"was interrupted: {title} took its box back, after exit code 0" in status
    waited = rented.run("wait").must(10)
    assert f"was interrupted: {title} took its box back" in waited.err


def test_a_cloud_notice_starts_the_on_notice_command_and_kills_a_run_that_does_not_end(
    rent: Rent, serve: Serve, faults: Faults
) -> None:
    own = PROFILE.replace("grace: 600", "grace: 600, on_notice: touch save-now && echo told me")
    rented, server = train(rent, serve, "ec2", own)
    saved = f"{rented.tree}/out/saved"
    # A recommendation asks for a checkpoint alone, once.
    told = server.tell(rebalance="2026-11-25T08:22:00Z")
    assert at(rented, "saved") - told <= 6 * slowness()
    rented.box.run(f"rm {saved}; touch {rented.tree}/stubborn")
    rented.run("run", "--queue", "--", "python", "train.py").must(0)
    with faults.attempt("box taken away by its cloud, run does not end", at="ec2") as attempt:
        told = server.interrupt(28)
        assert at(rented, "saved") - told <= 6 * slowness()
        assert not rented.box.exists(f"{rented.tree}/out/asked")
        asked = at(rented, "asked")
        assert 16 <= asked - told <= 20
        run = next(one for one in _over(rented) if one["name"] == "train-1")
        attempt.noticed(run["over"] - told, at_most=25)
    assert run["rc"] == 137
    assert run["interrupted"]["by"] == "ec2"
    log = rented.run("logs", "--run", "train-1").must(0).out
    assert log.count("told me") == 2
    queued = next(one for one in rented.status()["runs"] if one["name"] == "train-2")
    assert queued["ended"].startswith("interrupted ec2 ")
    status = rented.run("status").must(0).out
    assert "train-2" in status
    assert "was not started: EC2 took its box back" in status


def _over(rented: Rented) -> list[dict[str, Any]]:
    rented.run("wait", "--all")
    found: list[dict[str, Any]] = rented.status()["runs"]
    assert {one["state"] for one in found} == {"finished"}
    return found


def test_a_run_is_asked_to_end_when_its_container_stops_but_not_when_only_the_monitor_ends(
    rented: Rented, faults: Faults
) -> None:
    rented.user.repository(boxstrap__yaml=PROFILE, train__py=TRAIN, **{".gitignore": "out/\n"})
    rented.run("setup").must(0)
    _await_monitor(rented)
    rented.ssh("pkill -TERM -f 'runs[.]monitor'")
    rented.box.run("while pgrep -f 'runs[.]monitor'; do sleep 0.1; done")
    assert rented.status()["runs"][0]["state"] == "running"
    home = rented.folder
    rented.ssh(
        f"cd {home}; setsid agent/bin/python -B box/current/onbox runs.monitor {home} "
        "</dev/null >&0 2>&0 &"
    )
    (monitor,) = _await_monitor(rented)
    time.sleep(2)
    with faults.attempt("container stopped") as attempt:
        os.kill(monitor, signal.SIGTERM)  # from outside of its namespace, as PID 1 of a host does
        told = time.time()
        attempt.noticed(at(rented, "asked") - told, at_most=2)
        (run,) = _over(rented)
    assert run["interrupted"]["by"] == "container"
    assert run["interrupted"]["leaves"] - run["interrupted"]["noticed"] in (10, 11)
    said = rented.run("status").must(0).out
    assert "was interrupted: its container, or machine, was stopped, after exit code 0" in said
    wait_until(lambda: rented.box.run("pgrep -f 'runs[.]monitor'", check=False) == "")


def _await_monitor(rented: Rented) -> list[int]:
    """Return the number on this machine of the box's monitor, once it is there."""

    def look() -> list[int]:
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                is_one = b"runs.monitor" in file.read_bytes()
                if is_one and _namespace(file.parent) == _namespace(rented.box.root.parent):
                    found.append(int(file.parent.name))
        return found

    return wait_until(look, pause=0.1)


def _namespace(process: Path) -> str:
    return str((process / "ns/pid").readlink())
