"""One training on several boxes of one private network: all begin or none, and all end together."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.cli import Completed, User
from tests.main_job.rented import Rented
from tests.main_job.used import start_used
from tests.providers.accounts import SimulatedBox, simulated

pytestmark = pytest.mark.sampled(of="module")

REDUCE = (Path(__file__).parent / "reduce.py").read_text()
PROFILE = """\
version: 1
extends: ssh
box: {workdir: /workspace}
gpu: {require: false}
train: {command: python reduce.py 1, results: [out/], nodes: 2, grace: 2}
"""
STAYS = ("--", "python reduce.py 1 600")
"""A training that goes on for ten minutes."""


class Fleet:
    """Boxes of one user, whose commands are for all of them."""

    def __init__(self, user: User, boxes: Sequence[Rented]) -> None:
        self.user, self.boxes = user, boxes

    def run(self, task: str, *arguments: str) -> Completed:
        """Type a command for all."""
        hosts = [word for each in self.boxes for word in ("--host", each.box.host_string)]
        identity = ["--identity", str(self.boxes[0].box.identity)]
        return self.user.run(task, *hosts, *identity, *arguments)

    def names(self) -> list[str]:
        """The boxes' names on the user's machine."""
        return [each.box.host_string.rpartition("@")[2].replace(":", "-") for each in self.boxes]

    def said(self, name: str, at: int | None = None) -> list[str]:
        """This file of the newest run of each box, or of one; "" where there is none."""
        found = []
        for each in self.boxes if at is None else [self.boxes[at]]:
            # By a file that is written once: a run that ended goes on changing its folder.
            newest = f"$(dirname $(ls -t {each.folder}/runs/*/*/commit | head -n 1))"
            found.append(each.box.run(f"cat {newest}/{name} 2>/dev/null || :").strip())
        return found

    def await_end(self, *ranks: int, within: float = 10) -> float:
        """Wait until the newest runs of these nodes have ended; return after how many seconds."""
        began = time.monotonic()
        while not all(self.said("exit", at)[0] for at in ranks):
            assert time.monotonic() - began < within + 20, (
                self.said("nodes/output"),
                self.said("log"),
            )
            time.sleep(0.2)
        return time.monotonic() - began

    def alive(self) -> list[str]:
        """What is left of the trainings, on any box."""
        return [
            line
            for each in self.boxes
            for line in each.box.run("pgrep -af '[p]ython reduce' || :").split("\n")
            if line
        ]


@pytest.fixture(scope="module")
def fleet(
    mirror_rig: Rig, shared_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """Two boxes, and a training for both."""
    user = User(tmp_path_factory.mktemp("nodes") / "home")
    boxes = [Rented(user, start_used(mirror_rig, "vast", shared_folder)) for _ in range(2)]
    user.repository("homework", boxstrap__yaml=PROFILE, reduce__py=REDUCE)
    fleet = Fleet(user, boxes)
    fleet.run("setup").must(0)
    fleet.await_end(0, 1)
    yield fleet
    for each in boxes:
        each.box.stop()


def test_a_training_on_two_nodes_is_one_run_in_status_with_results_recorded_on_node_0_only(
    fleet: Fleet, tmp_path: Path
) -> None:
    assert fleet.said("log") == ["rank 0 of 2: sum 3.0", "rank 1 of 2: sum 3.0"]
    assert fleet.said("exit") == ["0", "0"]
    first, second = fleet.names()
    shown = fleet.run("status").must(0).out
    assert f"train-1 on 2 nodes: {first}, {second}  finished" in shown
    assert f"train-1 (node 1 of {first}'s)  finished" in shown
    assert fleet.said("results") == ["out/", ""]
    again = fleet.run("setup").must(0)
    assert again.out.count("nothing to do") == 2
    assert "2 reach each other" not in again.err
    logs = fleet.run("logs").must(0).out
    assert f"0 {first} | rank 0 of 2: sum 3.0" in logs
    assert all(
        any(line.endswith(f"| {said}") for line in logs.splitlines()) for said in fleet.said("log")
    )


def test_pull_brings_the_results_of_node_0_and_none_of_node_1(fleet: Fleet) -> None:
    first, second = fleet.names()
    pulled = fleet.run("pull", "--run", "train-1").must(0).out
    assert f"train-1 has no results here: those of {first} (node 0) are its results" in pulled
    results = fleet.user.place / "boxstrap-results"
    assert (results / f"{first}/train-1/out/sum.txt").read_text() == "3.0\n"
    assert not (results / second).exists() or not [*(results / second).rglob("sum.txt")]
    rows = fleet.user.run("runs", "--json").must(0).json()["runs"]
    where = {row["box"]: row["results"]["where"] for row in rows if row["name"] == "train-1"}
    assert where == {first: "home", second: "none"}


def test_runpod_pods_are_refused_as_nodes_unless_they_are_in_one_cluster(fleet: Fleet) -> None:
    words = ["--identity", str(fleet.boxes[0].box.identity), "--set", "provider.account=runpod"]
    with simulated("runpod") as account:
        account.boxes = [
            SimulatedBox(f"pod-{at}", address=one.box.address, port=one.box.port, user=one.box.user)
            for at, one in enumerate(fleet.boxes)
        ]
        fleet.user.env |= account.environment()
        words += [word for one in account.boxes for word in ("--host", f"runpod:{one.id}")]
        refused = fleet.user.run("run", *words).must(2)
        assert "train.nodes can't be on a box of runpod: a pod's ports are mapped" in refused.out
        for one in account.boxes:
            one.cluster = "c1"
        fleet.user.run("run", *words).must(0)
        fleet.await_end(0, 1)
        assert fleet.said("log") == ["rank 0 of 2: sum 3.0", "rank 1 of 2: sum 3.0"]


def test_a_node_that_loses_power_ends_the_other_node_in_ten_seconds(fleet: Fleet) -> None:
    fleet.run("run", *STAYS).must(0)
    fleet.boxes[1].box.power_off()
    assert fleet.await_end(0) < 10
    assert fleet.said("ended", 0) == ["node 1 143 lost"]
    fleet.boxes[1].box.power_on()
    assert fleet.alive() == []
    assert "node 1) was not heard any more" in fleet.run("status").out


def test_run_on_nodes_is_refused_when_their_torch_or_environment_differs(fleet: Fleet) -> None:
    begun = [each.runs() for each in fleet.boxes]
    site = (
        fleet.boxes[1].box.run("echo /workspace/homework/.venv/lib/python*/site-packages").strip()
    )
    fleet.boxes[1].box.run(f"mkdir {site}/torch-9.9.dist-info")
    refused = fleet.run("run", *STAYS).must(5)
    fleet.boxes[1].box.run(f"rmdir {site}/torch-9.9.dist-info")
    second = fleet.names()[1]
    assert f"{second}: torch 9.9 (the others: none)" in refused.out
    assert f"{second}: environment torch-9.9 (the others: none)" in refused.out
    assert [each.runs() for each in fleet.boxes] == begun


def test_run_on_nodes_is_refused_when_one_can_not_reach_another(fleet: Fleet) -> None:
    address = fleet.boxes[0].box.host_string.partition("@")[2].partition(":")[0]
    inside = ["nsenter", "-t", str(fleet.boxes[1].box._alive()), "-n", "ip", "route"]
    subprocess.run([*inside, "add", "blackhole", f"{address}/32"], check=True)
    refused = fleet.run("run", *STAYS).must(5)
    subprocess.run([*inside, "del", "blackhole", f"{address}/32"], check=True)
    first, second = fleet.names()
    assert f"{second} does not reach {first}" in refused.out
    assert fleet.alive() == []


def test_run_on_one_box_is_refused_when_the_profile_asks_for_two_nodes(fleet: Fleet) -> None:
    refused = fleet.boxes[0].run("run", *STAYS).must(2)
    assert "train.nodes is 2, and this is about one box" in refused.err
    fleet.boxes[0].run("run", "--set", "train.nodes=1", "--", "true").must(0)
