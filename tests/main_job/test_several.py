"""One command on several boxes at a time: a row for each, and one failure stops no other."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.cli import User
from tests.main_job.rented import SeveralBoxes
from tests.main_job.used import start_used

pytestmark = pytest.mark.sampled(of="module")

TRAIN = "import os, time\nprint('step 1 of', os.uname().nodename, flush=True)\ntime.sleep(600)\n"
NAMES = ("gpu-0", "gpu-1")


@pytest.fixture(scope="module")
def boxes(
    mirror_rig: Rig, shared_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SeveralBoxes]:
    """A user's boxes gpu-0 and gpu-1, and gpu-dead, at whose address nothing answers."""
    user = User(tmp_path_factory.mktemp("several") / "home")
    found = SeveralBoxes(
        user, {name: start_used(mirror_rig, "vast", shared_folder) for name in NAMES}
    )
    user.repository("seeds", train__py=TRAIN)
    for name, box in found.boxes.items():
        found.run("doctor", "--host", box.host_string)
        found.run("setup", "--host", box.host_string, "--name", name).must(0)
    (user.home / ".ssh").mkdir(exist_ok=True)
    with (user.home / ".ssh/config").open("a") as config:
        config.write("\nHost gpu-dead\n  HostName 127.0.0.1\n  Port 1\n  User root\n")
    (user.home / ".config/boxstrap").mkdir(parents=True, exist_ok=True)
    (user.home / ".config/boxstrap/groups.yaml").write_text("seeds: [gpu-0, gpu-1, gpu-dead]\n")
    yield found
    for box in found.boxes.values():
        box.stop()


def test_status_of_several_named_boxes_shows_each_of_them(boxes: SeveralBoxes) -> None:
    found = boxes.run("status", "--host", "gpu-0", "--host", "gpu-1", "--json").must(0).json()
    assert [one["box"] for one in found["boxes"]] == ["gpu-0", "gpu-1"]
    assert boxes.run("status", "--hosts", "seeds").must(3).out.count("train-1") == 2


def test_logs_and_exec_on_several_boxes_begin_each_line_with_the_box(boxes: SeveralBoxes) -> None:
    said = boxes.run("logs", "--host", "gpu-?").must(0).out
    assert sorted(line for line in said.splitlines() if "step 1" in line) == [
        f"{name} | step 1 of {box.run('hostname').strip()}" for name, box in boxes.boxes.items()
    ]
    lines = boxes.run("logs", "--host", "gpu-?", "--json").must(0).out.splitlines()
    assert {json.loads(line)["box"] for line in lines[:2]} == set(NAMES)
    command = ("--", "sh", "-c", 'printf "a\\nb\\n"; exit 4')
    done = boxes.run("exec", "--host", "gpu-0", "--host", "gpu-1", *command).must(4)
    assert "gpu-1 | a\ngpu-1 | b\n" in done.out
    # However long: as it comes, none of it left out.
    much = "echo begun; until [ -e /tmp/on ]; do sleep 0.1; done; yes | tr -d '\\n' | fold -w 999"
    began = boxes.begin("exec", "--host", "gpu-?", "--", "sh", "-c", f"{much} | head -n 9999")
    assert {began.line(), began.line()} == {"gpu-0 | begun\n", "gpu-1 | begun\n"}
    for box in boxes.boxes.values():
        box.run("touch /tmp/on")
    done = began.end().must(0)
    assert [done.out.count(f"{name} | {'y' * 999}\n") for name in NAMES] == [9999, 9999]
    # Of several codes: one that says that there are several.
    other = f"[ $(hostname) = {boxes.boxes['gpu-0'].run('hostname').strip()} ] || exit 3; exit 4"
    assert boxes.run("exec", "--host", "gpu-?", "--", "sh", "-c", other).rc == 7


def test_run_and_stop_for_several_boxes_act_on_each_of_them(boxes: SeveralBoxes) -> None:
    done = boxes.run(
        "run", "--host", "gpu-?", "--session", "sleep", "--", "echo up; sleep 600"
    ).must(0)
    assert done.out.count("sleep-1 running") == 2
    stopped = boxes.run("stop", "--host", "gpu-?", "--run", "sleep-1", "--json").must(0).json()
    assert [one["stopped"] for one in stopped["boxes"]] == [["sleep-1"], ["sleep-1"]]


def test_several_hosts_with_the_name_option_or_an_unknown_group_of_boxes_exit_with_2(
    boxes: SeveralBoxes,
) -> None:
    refused = boxes.run("setup", "--hosts", "seeds", "--name", "x").must(2)
    assert "--name is about one box, and several are named" in refused.err
    refused = boxes.run("stop", "--hosts", "nobody").must(2)
    assert "there is no group 'nobody'" in refused.err
    listed = boxes.user.run("boxes", "--group", "seeds", "--json").must(0).json()
    assert {box["name"] for box in listed["boxes"]} == set(NAMES)
