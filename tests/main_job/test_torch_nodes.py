"""torch's own DistributedDataParallel by torchrun on boxes of one private network; minutes, so only
`make chaos` runs it. `tests/main_job/test_nodes.py` has the same without torch."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.cli import User
from tests.main_job.rented import Rented
from tests.main_job.test_nodes import Fleet
from tests.smoke.torch_env import cpu_wheel

pytestmark = pytest.mark.sampled(of="module")

HERE = Path(__file__).parent
PROFILE = """\
version: 1
extends: ssh
box: {workdir: /workspace}
gpu: {require: false}
python: {requirements: [], packages: [torch, numpy, accelerate, deepspeed]}
train: {command: torchrun ddp.py, results: [out/], nodes: 1, grace: 2}
"""
NAMES = ("ddp", "elastic", "zero")
TOLERANCE = 1e-4
"""Sums of floats of 32 bits in another order, over 40 steps; relative to the value."""


@pytest.fixture(scope="module")
def with_torch(
    request: pytest.FixtureRequest, mirror_rig: Rig, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """Four boxes with torch, which is installed once."""
    if not request.config.getoption("every"):
        pytest.skip("make chaos")
    if cpu_wheel() is None:
        pytest.skip("no CPU build of torch")
    folder = tmp_path_factory.mktemp("torch")
    user = User(folder / "home")
    texts = {f"{name}__py": (HERE / f"{name}.py").read_text() for name in NAMES}
    user.repository("homework", boxstrap__yaml=PROFILE, **texts)
    first = Rented(user, mirror_rig.start("vast"))
    first.run("setup", "--set", "train=null").must(0)
    first.box.keep(folder / "layer")
    first.box.stop()
    boxes = [Rented(user, mirror_rig.start("vast", on=folder / "layer")) for _ in range(4)]
    yield Fleet(user, boxes)
    for each in boxes:
        each.box.stop()


def steps(fleet: Fleet) -> list[list[float]]:
    """Return what the first box's training noted of each step."""
    tree = fleet.boxes[0].tree
    found: list[list[float]] = json.loads(fleet.boxes[0].box.read(f"{tree}/out/steps.json"))
    return found


def line_of_the_docs(start: str, program: str) -> str:
    """Return the command of docs/nodes.md that starts so, for this program."""
    docs = (HERE / "../../docs/nodes.md").read_text()
    line = re.search(rf"`({start} [^`]*)`", docs)
    assert line, start
    return " ".join(line[1].split()).replace("train.py", program)


def test_a_killed_torchrun_worker_ends_the_training_on_all_nodes(with_torch: Fleet) -> None:
    fleet = Fleet(with_torch.user, with_torch.boxes[:2])
    long = "torchrun --no-python sh -c 'echo up; exec sleep 600'"
    fleet.run("run", "--set", "train.nodes=2", "--overwrite-results", "--", long).must(0)
    fleet.boxes[1].box.run("pkill -KILL -f '^sleep 600'")
    assert fleet.await_end(0, 1) < 15
    assert fleet.said("exit") == ["1", "1"]
    assert fleet.said("ended", 0) == ["node 1 1 exit"]


@pytest.mark.parametrize("count", [2, 4])
def test_torch_ddp_on_several_nodes_gives_the_same_losses_as_on_one(
    with_torch: Fleet, count: int
) -> None:
    alone = Fleet(with_torch.user, with_torch.boxes[:1])
    alone.boxes[0].run("run", "--overwrite-results").must(0)
    alone.await_end(0, within=60)
    expected = steps(alone)
    fleet = Fleet(with_torch.user, with_torch.boxes[:count])
    fleet.run("run", "--set", f"train.nodes={count}", "--overwrite-results").must(0)
    fleet.await_end(*range(count), within=60)
    assert fleet.said("exit") == ["0"] * count, fleet.said("log")
    for rank, log in enumerate(fleet.said("log")):
        assert f"rank {rank} of {count}: the all-reduce is right" in log
    found = steps(fleet)
    assert len(found) == 40
    apart = max(
        abs(a - b) / abs(b)
        for ours, theirs in zip(found, expected, strict=True)
        for a, b in zip(ours, theirs, strict=True)
    )
    print(f"{count} nodes: {apart:.1e} apart at the most, of {len(found)} steps")
    assert apart < TOLERANCE


def test_accelerate_trains_on_two_nodes_by_the_command_of_the_docs(with_torch: Fleet) -> None:
    fleet = Fleet(with_torch.user, with_torch.boxes[:2])
    command = line_of_the_docs("accelerate launch --multi_gpu", "ddp.py")
    fleet.run("run", "--set", "train.nodes=2", "--overwrite-results", "--", command).must(0)
    fleet.await_end(0, 1, within=90)
    assert fleet.said("exit") == ["0", "0"], fleet.said("log")
    for rank, log in enumerate(fleet.said("log")):
        assert f"rank {rank} of 2: the all-reduce is right" in log


def test_deepspeed_trains_on_two_nodes_by_the_command_of_the_docs(with_torch: Fleet) -> None:
    fleet = Fleet(with_torch.user, with_torch.boxes[:2])
    command = line_of_the_docs("accelerate launch --use_deepspeed", "zero.py")
    fleet.run("run", "--set", "train.nodes=2", "--overwrite-results", "--", command).must(0)
    fleet.await_end(0, 1, within=120)
    assert fleet.said("exit") == ["0", "0"], "\n".join(fleet.said("log"))
    found = [re.search(r"ZeRO (\d of 2): .* weights (\S+)", log) for log in fleet.said("log")]
    assert all(found), fleet.said("log")
    assert [each[1] for each in found if each] == ["0 of 2", "1 of 2"]
    assert len({each[2] for each in found if each}) == 1


def await_line(fleet: Fleet, words: str) -> None:
    """Wait until node 0's log has these words."""
    until = time.monotonic() + 180
    while words not in fleet.said("log", 0)[0]:
        assert time.monotonic() < until, fleet.said("log", 0)
        assert not fleet.said("exit", 0)[0], fleet.said("log", 0)
        time.sleep(1)


def test_an_elastic_training_continues_on_other_nodes_if_a_node_is_lost(with_torch: Fleet) -> None:
    fleet = Fleet(with_torch.user, with_torch.boxes[:2])
    command = line_of_the_docs("torchrun --nnodes 2:4", "elastic.py").replace("2:4", "1:2")
    fleet.run("run", "--set", "train.nodes=2", "--overwrite-results", "--", command).must(0)
    await_line(fleet, "world of 2")
    fleet.boxes[1].box.power_off()
    try:
        await_line(fleet, "world of 1")
        fleet.await_end(0, within=60)
        assert fleet.said("exit", 0) == ["0"], fleet.said("log", 0)
    finally:
        fleet.boxes[1].box.power_on()
