"""A disk that a training fills is told of in time, by every command that looks."""

import json
from pathlib import Path

import pytest

from tests.main_job.conftest import Rent

pytestmark = pytest.mark.sampled(of="module")

# It leaves a twentieth of the disk, and goes on once it is told.
TRAIN = """\
import os, shutil, time
os.makedirs("out", exist_ok=True)
disk = shutil.disk_usage(".")
with open("out/step-1.pt", "wb") as file:
    os.posix_fallocate(file.fileno(), 0, disk.free - disk.total // 20)
print("step 1", flush=True)
while not os.path.exists(os.environ["BOXSTRAP_RUN"] + "/disk_low"):
    time.sleep(0.1)
print("told", open(os.environ["BOXSTRAP_RUN"] + "/disk_low").read().split()[-1], flush=True)
while not os.path.exists("go"):
    time.sleep(0.1)
"""
PROFILE = "version: 1\ngpu: {require: false}\ntrain: {command: python train.py, results: [out/]}\n"


def test_status_top_logs_wait_and_report_warn_of_a_low_disk_and_name_new_files(rent: Rent) -> None:
    rented = rent("vast", used=True, disk="1G")
    rented.user.repository("homework", boxstrap__yaml=PROFILE, train__py=TRAIN)
    rented.run("setup").must(0)
    log = f"{rented.folder}/runs/*/train-1/log"
    rented.box.run(f"until grep 'told out/step-1.pt' {log}; do sleep 0.1; done")
    status = rented.run("status").must(0).out
    assert "low disk: " in status
    assert "written in the last hour: out/step-1.pt " in status
    (run,) = rented.run("status", "--json").must(0).json()["runs"]
    assert run["disk"]["free"] < run["disk"]["total"] / 10
    assert [file["path"] for file in run["disk"]["files"]][:1] == ["out/step-1.pt"]
    top = rented.run("top", "--looks", "1").must(0).out
    assert " free (low)" in top
    assert "written in the last hour: out/step-1.pt " in top
    (look,) = rented.run("top", "--looks", "1", "--json").must(0).out.splitlines()
    assert json.loads(look)["low"]["files"][0]["path"] == "out/step-1.pt"
    following, waiting = rented.begin("logs", "-f"), rented.begin("wait")
    for one in (following, waiting):
        one.await_said("written in the last hour: out/step-1.pt ")
    rented.as_user("touch /workspace/homework/go")
    assert waiting.end().must(0).err.count("low disk: ") == 1
    assert following.end().must(0).err.count("low disk: ") == 1
    page = rented.run("report", "--json").must(0).json()["report"]
    assert "At its end, low disk: " in Path(page).read_text()
