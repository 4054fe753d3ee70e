"""A node of a training fails in any way, at any moment: all end, each names the cause, and nothing
of it is left on any box. One try in a usual run, thirty in all."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.cli import User
from tests.faults.plugin import Faults
from tests.main_job.rented import Rented
from tests.main_job.test_nodes import PROFILE, REDUCE, Fleet
from tests.main_job.used import start_used

pytestmark = pytest.mark.boxes

NODES = 3
TRIES = 30
NOTICED_S = 10
WRITES = (
    "python reduce.py 1 & while head -c 65536 /dev/zero; do sleep 0.1; done >>out/more; exit 28"
)
"""A training that ends once its disk is full."""
STAYS = "python reduce.py 1 600"


@pytest.fixture
def fleet(mirror_rig: Rig, shared_folder: Path, user: User) -> Iterator[Fleet]:
    """Boxes with disks of their own."""
    boxes = [
        Rented(user, start_used(mirror_rig, "vast", shared_folder, disk="1G")) for _ in range(NODES)
    ]
    profile = PROFILE.replace("nodes: 2", f"nodes: {NODES}")
    user.repository("homework", boxstrap__yaml=profile, reduce__py=REDUCE)
    yield Fleet(user, boxes)
    for each in boxes:
        each.box.stop()


def power(fleet: Fleet, node: int) -> Callable[[], None]:
    fleet.boxes[node].box.power_off()
    return fleet.boxes[node].box.power_on


def cut(fleet: Fleet, node: int) -> Callable[[], None]:
    fleet.boxes[node].box.cut()
    return fleet.boxes[node].box.heal


def hole(fleet: Fleet, node: int) -> Callable[[], None]:
    fleet.boxes[node].box.blackhole()
    return fleet.boxes[node].box.unblackhole


def killed(fleet: Fleet, node: int) -> Callable[[], None]:
    fleet.boxes[node].box.run("pkill -KILL -f '[p]ython reduce'")
    return lambda: None


def unwatched(fleet: Fleet, node: int) -> Callable[[], None]:
    fleet.boxes[node].box.run("pkill -KILL -f '[n]odes.watch'")
    return lambda: None


def full(fleet: Fleet, node: int) -> Callable[[], None]:
    box = fleet.boxes[node].box
    box.fill_disk(8)  # the training writes at the same time
    box.run("dd if=/dev/zero of=/rest bs=4096 2>/dev/null || :")

    def undo() -> None:
        box.run("rm -f /rest /workspace/homework/out/more")
        box.empty_disk()

    return undo


DURING = {
    "power lost": (power, "lost"),
    "cable pulled": (cut, "lost"),
    "black hole": (hole, "lost"),
    "process killed": (killed, "137 exit"),
    "watch killed": (unwatched, ""),
    "disk full": (full, "28 exit"),
}


def another_torch(fleet: Fleet, node: int) -> tuple[str, Callable[[], object]]:
    box = fleet.boxes[node].box
    site = box.run("echo /workspace/homework/.venv/lib/python*/site-packages").strip()
    box.run(f"mkdir {site}/torch-9.9.dist-info")
    return "torch 9.9 (the others: none)", lambda: box.run(f"rmdir {site}/torch-9.9.dist-info")


def cut_pair(fleet: Fleet, node: int) -> tuple[str, Callable[[], object]]:
    other = (
        fleet.boxes[(node + 1) % len(fleet.boxes)]
        .box.host_string.partition("@")[2]
        .partition(":")[0]
    )
    route = ["nsenter", "-t", str(fleet.boxes[node].box._alive()), "-n", "ip", "route"]
    subprocess.run([*route, "add", "blackhole", f"{other}/32"], check=True)
    undo = [*route, "del", "blackhole", f"{other}/32"]
    return f"does not reach {other}-22", lambda: subprocess.run(undo, check=True)


def wrong_clock(fleet: Fleet, node: int) -> tuple[str, Callable[[], object]]:
    """The clock of all boxes is this machine's: the check's own program is told another one."""
    box = fleet.boxes[node].box
    check = f"{fleet.boxes[node].folder}/box/current/onbox/nodes/check.py"
    text = box.read(check)
    box.write(check, text.replace("{time.time()}", "{time.time() - 60}"))
    return "is 60 s behind the others'", lambda: box.write(check, text)


SLOW = "slow link"
BEFORE = {
    "another torch": another_torch,
    "pair cut": cut_pair,
    "wrong clock": wrong_clock,
}


def is_slow(fleet: Fleet, node: int) -> None:
    """A slow node is named, and nothing ends: all wait for it."""
    box = fleet.boxes[node].box
    box.limit(2)
    done = fleet.run("run", "--", "python reduce.py 1 3").must(0)
    fleet.await_end(*range(NODES))
    box.limit(0)
    assert f"{fleet.names()[node]} has " in done.err
    assert fleet.said("exit") == ["0"] * NODES


def test_a_node_that_fails_ends_all_or_lets_none_begin(
    fleet: Fleet, faults: Faults, seeded: random.Random, request: pytest.FixtureRequest
) -> None:
    option = request.config.option
    if option.whole and not option.every:
        pytest.skip("make chaos, or by its name: tests/main_job/test_nodes.py has a case of each")
    kinds = [*DURING, *BEFORE, SLOW]
    seeded.shuffle(kinds)
    fleet.run("setup").must(0)
    fleet.await_end(*range(NODES))
    for number in range(TRIES if option.every else 1):
        fault, node = kinds[number % len(kinds)], seeded.randrange(NODES)
        with faults.attempt(fault, at=f"node {node}") as attempt:
            if fault == SLOW:
                is_slow(fleet, node)
                continue
            if fault in BEFORE:
                named, undo = BEFORE[fault](fleet, node)
                before = [each.runs() for each in fleet.boxes]
                refused = fleet.run("run", "--", STAYS)
                undo()
                assert refused.rc == 5, refused.text
                assert f"{fleet.names()[node]}" in refused.out
                assert named in refused.out
                assert [each.runs() for each in fleet.boxes] == before
                attempt.noticed(refused.seconds, at_most=NOTICED_S)
                assert fleet.alive() == []
                continue
            break_it, named = DURING[fault]
            command = WRITES if fault == "disk full" else STAYS
            fleet.run("run", "--", command).must(0)
            time.sleep(seeded.uniform(0, 1))
            attempt.begin()
            undo_it = break_it(fleet, node)
            if fault == "power lost":  # the rig waits until its last process is gone
                attempt.begin()
            others = [each for each in range(NODES) if each != node]
            left = others if fault == "power lost" else range(NODES)
            fleet.await_end(*left)
            attempt.noticed(at_most=NOTICED_S + 2)  # its grace
            told = [fleet.said("ended", each)[0] for each in others]
            undo_it()
            if fault in ("cable pulled", "black hole") and node == 0:
                assert set(told) == {"node 0 143 lost"}
            else:
                assert all(said.startswith(f"node {node} ") for said in told), told
            assert all(named in said for said in told), told
            assert fleet.alive() == []


def test_the_pair_that_can_not_talk_among_eight_is_named_in_ten_seconds(
    mirror_rig: Rig, shared_folder: Path, user: User, faults: Faults, request: pytest.FixtureRequest
) -> None:
    if not request.config.getoption("every"):
        pytest.skip("make chaos")
    boxes = [Rented(user, start_used(mirror_rig, "vast", shared_folder)) for _ in range(8)]
    profile = PROFILE.replace("nodes: 2", "nodes: 8")
    user.repository("homework", boxstrap__yaml=profile, reduce__py=REDUCE)
    fleet = Fleet(user, boxes)
    fleet.run("setup").must(0)
    fleet.await_end(*range(8), within=30)
    with faults.attempt("pair of eight cut") as attempt:
        named, _ = cut_pair(fleet, 5)
        refused = fleet.run("run", "--", STAYS).must(5)
        assert f"{fleet.names()[5]} {named}" in refused.out
        attempt.noticed(refused.seconds, at_most=NOTICED_S)
    for each in boxes:
        each.box.stop()
