"""Network faults during a setup: retried within limits, named, and finished once repaired."""

import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.boxes import Rig, RigBox
from tests.boxes.git_server import GitServer
from tests.cli import User
from tests.faults.at_once import at_once
from tests.faults.plugin import Drawn, Faults
from tests.main_job.rented import Rented
from tests.main_job.used import start_used

pytestmark = pytest.mark.sampled(of="module")

INDEX_SAYS = "the package index doesn't answer"
DNS_SAYS = "the box can't look up host names"
NAME = "packages.rig.test"


@dataclass
class NetworkWorld:
    """A box with its user, and the rig with all that the box reaches."""

    rented: Rented
    rig: Rig
    folder: Path

    @property
    def box_pip(self) -> str:
        """pip's settings with the index under a name, which has to be looked up."""
        url = self.rig.mirror.index_url.replace(self.rig.mirror.host, NAME)
        return f"[global]\nindex-url = {url}\ntrusted-host = {NAME}\n"


@dataclass(frozen=True)
class NetworkCase:
    """One row: what breaks, what is said, how it is repaired."""

    fault: str
    at: str
    says: str
    break_: Callable[[NetworkWorld], object]
    mend: Callable[[NetworkWorld], object]
    kind: str = "vast"
    step: str = "agent"
    tries_again: bool = True
    at_most_s: float = 150
    own_mirror: bool = False
    """Whether to break a mirror of its own, so that no other box is affected."""


def no_names(world: NetworkWorld) -> None:
    box = world.rented.box
    box.write("/etc/pip.conf", world.box_pip)
    box.write("/etc/resolv.conf", f"nameserver {world.rig.mirror.host}\n")


def names_again(world: NetworkWorld) -> None:
    world.rented.box.run(f"echo {world.rig.mirror.host} {NAME} >>/etc/hosts")


def refuses(world: NetworkWorld) -> None:
    world.rig.mirror.break_with(503)


def stalls(world: NetworkWorld) -> None:
    world.rig.mirror.stall()


def mended(world: NetworkWorld) -> None:
    world.rig.mirror.mend()


CASES = (
    NetworkCase("no DNS", "uv", DNS_SAYS, no_names, names_again),
    NetworkCase("no DNS", "no uv", DNS_SAYS, no_names, names_again, "vast-nouv"),
    NetworkCase("index answers 503", "uv", INDEX_SAYS, refuses, mended, own_mirror=True),
    NetworkCase(
        "index answers 503", "apt", INDEX_SAYS, refuses, mended, "runpod", "tools", own_mirror=True
    ),
    # uv itself retried for over a minute.
    NetworkCase(
        "index stalls", "uv", INDEX_SAYS, stalls, mended, tries_again=False, own_mirror=True
    ),
    NetworkCase("index stalls", "no uv", INDEX_SAYS, stalls, mended, "vast-nouv", own_mirror=True),
)


def world_for(rig: Rig, box: RigBox, folder: Path) -> NetworkWorld:
    rented = Rented(User(folder / "home"), box)
    rented.user.repository(requirements__txt="iniconfig>=2\n")
    return NetworkWorld(rented, rig, folder)


def stopped_then_finished(
    world: NetworkWorld, case: NetworkCase, faults: Faults, *options: str
) -> None:
    """Check that setup ends in time, names the fault, stamps nothing; finishes once repaired."""
    rented = world.rented
    with faults.attempt(case.fault, case.at) as attempt:
        case.break_(world)
        attempt.begin()
        failed = rented.run("setup", *options).must(7)
        attempt.noticed(at_most=case.at_most_s)
        assert f"the step {case.step} failed: {case.says}" in failed.err, failed.err
        assert not rented.box.exists(f"{rented.folder}/runs")
        stamps = rented.box.run(f"find {rented.folder}/steps -name '{case.step}.ok'")
        assert stamps == ""
        log = rented.run("logs", "--step", case.step).must(0).out
        assert ("trying again in 8 s" in log) == case.tries_again, log
        if case.tries_again:
            assert failed.err.count(f"{case.step:9}  ...    {case.says}") >= 1, failed.err
        case.mend(world)
        finished = rented.run("setup", *options).must(0)
        assert "step 1 loss" in finished.out
        assert rented.runs() == ["train-1"]
        attempt.outcome("named, exit 7; then finished")


def test_setup_stops_at_name_servers_and_indexes_that_fail_and_finishes_once_they_are_mended(
    mirror_rig: Rig, tmp_path: Path, faults: Faults, drawn: Drawn[NetworkCase]
) -> None:
    def one(case: NetworkCase) -> None:
        with Rig(mirror=True) if case.own_mirror else nullcontext(mirror_rig) as rig:
            world = world_for(rig, rig.start(case.kind), tmp_path / f"{case.fault} {case.at}")
            stopped_then_finished(world, case, faults)
            world.rented.box.stop()

    at_once(one, drawn(CASES))


GIT_CASES = (
    ("git server answers 503", lambda server: server.break_with(503), True),
    ("git server stalls", lambda server: server.stall(), True),
    ("git server hangs up half-way", lambda server: server.cut(), True),
)


def test_setup_stops_at_a_broken_git_server_and_finishes_once_that_is_mended(
    mirror_rig: Rig, shared_folder: Path, tmp_path: Path, faults: Faults, drawn: Drawn[Any]
) -> None:
    def one(row: tuple[str, Callable[[GitServer], None], bool]) -> None:
        fault, break_, tries_again = row
        box = start_used(mirror_rig, "vast", shared_folder)
        world = world_for(mirror_rig, box, tmp_path / fault)
        server = GitServer(world.rig.mirror.host, world.folder)
        case = NetworkCase(
            *(fault, "access: url", "the git server doesn't answer"),
            lambda _: break_(server),
            lambda _: server.mend(),
            step="repo",
            tries_again=tries_again,
        )
        serve(world, server)
        stopped_then_finished(world, case, faults, "--set", "git.access=url")
        box.stop()
        server.close()

    at_once(one, drawn(GIT_CASES))


def serve(world: NetworkWorld, server: GitServer) -> None:
    """Put the user's repository on the server, as the remote that the box clones from."""
    place = world.rented.user.place
    subprocess.run(
        ["git", "clone", "--quiet", "--bare", str(place), str(world.folder / "homework.git")],
        check=True,
        env=world.rented.user.env,
    )
    argv = ["git", "-C", str(place), "remote", "add", "origin", server.url("homework.git")]
    subprocess.run(argv, check=True, env=world.rented.user.env)


def test_setup_finishes_when_every_fifth_packet_is_lost(
    mirror_rig: Rig, tmp_path: Path, faults: Faults
) -> None:
    """In both directions, for the link and for all that the box fetches."""
    box = mirror_rig.start("vast")
    world = world_for(mirror_rig, box, tmp_path)
    with faults.attempt("20 % of packets lost") as attempt:
        box.loss(20)
        assert "step 1 loss" in world.rented.run("setup").must(0).out
        assert world.rented.runs() == ["train-1"]
        attempt.outcome("finished")
    box.stop()
