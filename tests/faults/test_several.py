"""A command for several boxes of which some are dead, refuse, have another key, say nothing, or
allow one session at a time: it ends, each box that fails is named with the reason, and the others
are served."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bootstrap.tasks import NAMES, find
from bootstrap.tasks.command import HOSTS
from tests.boxes import Rig
from tests.cli import User
from tests.faults.plugin import Faults
from tests.main_job.rented import SeveralBoxes
from tests.main_job.test_nodes import REDUCE
from tests.main_job.used import start_used

pytestmark = [pytest.mark.boxes, pytest.mark.sampled]

SAID_WITHIN_S = 40
SAYS = {
    "dead": "no answer within 10 s",
    "refusing": "nothing listens on that port",
    "changed": "its host key changed",
    "silent": "said nothing for 15 s",
}
"""Each fault, and what a command says of such a box."""
FIRST, ONE = "first", "one-session"
TASKS: dict[str, tuple[str, ...]] = {
    "setup": (),
    "plan": (),
    "verify": (),
    "sync": (),
    "run": ("--", "true"),
    "status": (),
    "logs": (),
    "wait": (),
    "pull": (),
    "push": ("train.py", "--to", "there"),
    "exec": ("--", "true"),
    "report": (),
    "stop": (),
    "top": ("--looks", "1"),
    "down": (),
}
"""Each task that takes several boxes, and what else is typed."""


ENDS_WELL = {"report", "top"}
"""Tasks that show what they have, and say what is missing."""
PROFILE = """\
version: 1
extends: ssh
box: {workdir: /workspace}
gpu: {require: false}
train: {command: python train.py}
"""


def on(*names: str) -> list[str]:
    return [word for name in names for word in ("--host", name)]


@pytest.fixture(scope="module")
def boxes(
    mirror_rig: Rig, shared_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SeveralBoxes]:
    """One user's boxes by their names: one for each fault, and two that are well."""
    one = {"/etc/ssh/sshd_config.d/one.conf": "MaxSessions 1\n"}
    made = {
        name: start_used(mirror_rig, "vast", shared_folder, files=one if name == ONE else None)
        for name in (FIRST, ONE, *SAYS)
    }
    user = User(tmp_path_factory.mktemp("several") / "home")
    found = SeveralBoxes(user, made)
    user.repository("homework", boxstrap__yaml=PROFILE, reduce__py=REDUCE)
    for name, box in made.items():
        found.run("setup", *on(box.host_string), "--name", name).must(0)
    made["dead"].blackhole()
    made["refusing"].kill_sshd()
    made["changed"].new_host_key()
    made["silent"].run("pkill -STOP -x sshd")
    yield found
    for box in made.values():
        box.stop()


def test_the_fault_tests_of_several_boxes_cover_every_command_that_takes_several_hosts() -> None:
    assert {name for name in NAMES if HOSTS[0] in find(name).options} == {*TASKS}


@pytest.mark.parametrize("task", TASKS)
def test_a_command_for_several_boxes_names_each_failed_box_in_time_and_works_on_the_healthy_ones(
    boxes: SeveralBoxes, faults: Faults, task: str
) -> None:
    with faults.attempt("several boxes, four of them faulty", task) as attempt:
        began = time.monotonic()
        done = boxes.run(task, *on(FIRST, ONE, *SAYS), *TASKS[task])
        attempt.noticed(time.monotonic() - began, at_most=SAID_WITHIN_S)
        assert done.rc == (0 if task in ENDS_WELL else 7), done.text
        lines = done.text.splitlines()
        for name, said in SAYS.items():
            at = boxes.boxes[name].address
            assert any(said in line and (name in line or at in line) for line in lines), done.text
        if task in ("setup", "run"):
            rows = dict(line.split()[:2] for line in done.out.split("BOX")[1].splitlines()[1:7])
            assert {name for name, code in rows.items() if code == "0"} == {FIRST, ONE}
            assert f"4 of 6 boxes failed: {', '.join(SAYS)}." in done.err
        boxes.run(task, *on(ONE), *TASKS[task]).must(0)


@pytest.mark.parametrize("task", ["setup", "run"])
@pytest.mark.parametrize("fault", SAYS)
def test_no_node_of_a_training_is_started_when_one_of_its_boxes_fails(
    boxes: SeveralBoxes, faults: Faults, task: str, fault: str
) -> None:
    more = ("--set", "train.nodes=2", "--set", "train.command=python reduce.py 1")
    with faults.attempt(f"a node is {fault}", task) as attempt:
        began = time.monotonic()
        done = boxes.run(task, *on(FIRST, fault), *more)
        attempt.noticed(time.monotonic() - began, at_most=SAID_WITHIN_S)
        assert done.rc not in (0, 1), done.text
        assert SAYS[fault] in done.text, done.text
        assert f"not started: {fault} failed, and all begin or none" in done.text
