"""After a setup: status, logs, stop, boxes, verify. One box serves them all, in this order."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.boxes import Rig
from tests.cli import User
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented
from tests.main_job.used import start_used
from tests.plain_environment import BIN

TRAIN = """\
import time
print("step 1", flush=True)
time.sleep(1)
print("a second line", flush=True)
while True:
    time.sleep(0.2)
    print("more", flush=True)
"""


@pytest.fixture(scope="module")
def rented(
    mirror_rig: Rig, shared_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rented]:
    """A box whose training runs until it is stopped."""
    user = User(tmp_path_factory.mktemp("after") / "home")
    user.repository(train__py=TRAIN)
    box = start_used(mirror_rig, "vast", shared_folder)
    yield Rented(user, box)
    box.stop()


def test_plan_of_a_new_box_lists_the_steps_of_setup_and_writes_nothing(rent: Rent) -> None:
    rented = rent("vast")
    rented.user.repository()
    rented.run("plan").must(0)  # so that the first contact's own files are already written
    before = rented.listing()
    planned = rented.run("plan", "--json").must(0).json()
    assert planned["box"] == f"{rented.box.address}-22"
    steps = {step["step"]: step["why"] for step in planned["steps"]}
    assert steps["preflight"] == "new"
    assert steps["train"] == "new"
    # This user's profile asks for no GPU.
    assert {step["step"] for step in planned["steps"] if not step["runs"]} == {"smoke"}
    assert steps["smoke"] == "not-asked"
    shown = rented.run("plan", "--show-origin").must(0).out
    assert "boxstrap.yaml:2" in shown
    assert rented.listing() == before
    assert not rented.box.exists("/workspace/.boxstrap")


def test_status_and_logs_say_that_nothing_was_set_up_before_a_setup(rented: Rented) -> None:
    assert "no setup was made here" in rented.run("status").must(0).out
    assert "no run was started" in rented.run("logs").must(2).err
    assert "no setup" in rented.run("logs", "--step", "python").must(2).err


def test_setup_with_json_prints_one_document_and_nothing_else(rented: Rented) -> None:
    told = rented.run("setup", "--json").must(0)
    document = told.json()
    assert (document["v"], document["exit"]) == (1, 0)
    assert document["run"]["name"] == "train-1"
    assert {step["state"] for step in document["steps"]} <= {"ok", "warned", "skipped"}
    assert told.err == ""
    again = rented.run("setup", "--json").must(0).json()
    assert again["setup"] is None


def test_a_command_without_host_goes_to_the_only_known_box(rented: Rented) -> None:
    alone = rented.user.run("status", "--identity", str(rented.box.identity)).must(0)
    assert "train-1" in alone.out
    assert "train-1" in rented.run("status", host=rented.box.address).must(0).out


def test_boxes_lists_a_box_that_was_set_up(rented: Rented) -> None:
    assert rented.box.address in rented.user.run("boxes").must(0).out
    (box,) = rented.user.run("boxes", "--json").must(0).json()["boxes"]
    assert (box["name"], box["user"], box["port"]) == (f"{rented.box.address}-22", "root", 22)


def test_status_says_that_a_run_is_running_and_when_it_last_wrote(rented: Rented) -> None:
    shown = rented.run("status").must(0).out
    assert "is set up" in shown
    assert "homework/train-1  running " in shown
    assert "last wrote" in shown
    run = rented.status()["runs"][0]
    assert (run["state"], run["session"]) == ("running", "train")


def test_attach_works_with_an_unknown_terminal_type_and_after_the_box_lost_its_tmux_socket(
    rented: Rented,
) -> None:
    rented.box.run("rm -rf /tmp/tmux-*")
    terminal = pexpect.spawn(
        str(BIN / "boxstrap"),
        ["attach", "--host", rented.box.host_string, "--identity", str(rented.box.identity)],
        cwd=str(rented.user.place),
        env={**rented.user.env, "TERM": "xterm-unheard-of"},
        timeout=120,
    )
    terminal.expect("the terminal type xterm-unheard-of is unknown on this box: xterm")
    terminal.expect("more")
    terminal.send(b"\x02d")  # tmux's own keys to detach
    terminal.expect("detached")
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    assert rented.status()["runs"][0]["state"] == "running"


def test_attach_is_refused_without_a_terminal(rented: Rented) -> None:
    assert "terminal" in rented.run("attach").must(2).err


def test_logs_prints_what_the_run_printed_and_filters_by_since_and_grep(rented: Rented) -> None:
    shown = rented.run("logs").must(0)
    assert shown.out.startswith("step 1\na second line\nmore\n")
    lines = rented.run("logs", "--json").must(0).out.splitlines()
    assert json.loads(lines[0]) == {"v": 1, "line": "step 1"}
    assert "there is no run nine" in rented.run("logs", "--run", "nine").must(2).err
    # The training writes on, so only the start is compared. A run named twice is shown once.
    for which in (("--live", "--since", "1d"), ("--run", "train-1", "--run", "homework/train-1")):
        assert rented.run("logs", *which).must(0).out.startswith(shown.out)
    assert "step 1" not in rented.run("logs", "--since", "0s").must(0).out
    for pattern, is_there in (("step 1", True), ("no such thing", False)):
        said = rented.run("logs", "--grep", pattern).must(0)
        assert ("step 1" in said.out, "no line matches" in said.err) == (is_there, not is_there)
    assert "is no time" in rented.run("logs", "--since", "soon").must(2).err
    assert "no step" in rented.run("logs", "--step", "nine").must(2).err
    said = rented.run("logs", "--step", "prepare").must(0)
    assert (said.out, "in the last setup prepare printed nothing" in said.err) == ("", True)


def test_ctrl_c_in_logs_follow_says_that_the_run_goes_on_and_how_to_stop_it(rented: Rented) -> None:
    going = rented.begin("logs", "-f")
    going.line()
    going.interrupt()
    said = going.end().must(130).err
    assert "continues" in said
    assert said.endswith(f"boxstrap stop --host {rented.box.host_string}\n")


def test_logs_follow_prints_a_run_until_stop_ends_it(rented: Rented) -> None:
    going = rented.begin("logs", "-f")
    time.sleep(1)
    assert going.process.poll() is None
    stopped = rented.run("stop").must(0)
    assert "stopped: train-1" in stopped.out
    assert "still billing" in stopped.out
    done = going.end().must(0)
    assert "train-1 was stopped after" in done.err.splitlines()[-1]
    assert done.out == rented.run("logs").must(0).out
    assert rented.status()["runs"][0]["rc"] == 143
    assert rented.trainings() == 0
    assert f"nothing was running on {rented.box.address}" in rented.run("stop").must(0).out


def test_setup_does_not_restart_a_run_that_was_stopped(rented: Rented) -> None:
    again = rented.run("setup").must(0)
    assert "nothing to do" in again.out
    assert "train-1 was stopped" in again.out
    assert rented.runs() == ["train-1"]


def test_boxes_forget_makes_a_box_unknown_and_does_not_end_it(rented: Rented) -> None:
    name = rented.box.address
    told = rented.user.run("boxes", "--forget", name).must(0).out
    assert f"forgotten: {name}-22 (its name, its pinned host key, its last profile, its ent" in told
    assert "The box itself was not ended" in told
    assert rented.user.run("boxes", "--json").must(0).json()["boxes"] == []
    assert "No box is known yet" in rented.user.run("status").must(0).out
