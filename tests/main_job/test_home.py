"""All of a run comes home; `runs`, `logs`, `status` and `report` show it when its box is gone."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli import User, UserRepository
from tests.main_job.conftest import Rent
from tests.providers.accounts import SimulatedAccount, SimulatedOffer, simulated

PROFILE = """\
version: 1
gpu: {require: false}
secrets: [API_TOKEN]
train: {command: python train.py, results: [out/]}
"""
TRAIN = """\
import os, sys, time
name = (sys.argv[1:] or ["first"])[0]
os.makedirs("out", exist_ok=True)
open("out/model.pt", "w").write(name)
for step in range(1, 4):
    print(f"{name}: step {step} loss 0.{9 - step}", flush=True)
print("token", os.environ["API_TOKEN"], "\\x1b]0;owned\\x07", flush=True)
while os.path.exists("hold"):
    time.sleep(0.05)
if name == "fails":
    raise SystemExit("ValueError: not this one")
"""
TOKEN = "a-token-that-nobody-may-see"
NAMES = ("first", "second", "third", "fails", "fifth", "sixth")


@pytest.fixture
def account() -> Iterator[SimulatedAccount]:
    with simulated("vast") as made:
        made.loading_s = 0.0
        made.offers = [SimulatedOffer("11", price=0.4)]
        yield made


def texts(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in folder.rglob("*") if one.is_file())


def record(repository: UserRepository, box: str, run: str) -> dict[str, Any]:
    file = repository.root / "boxstrap-results" / box / run / "boxstrap-run/run.json"
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@pytest.mark.boxes
def test_six_runs_in_a_row_from_up_to_down_leave_six_logs_at_home(
    rent: Rent, account: SimulatedAccount
) -> None:
    rented = rent("vast", used=True)
    user, box = rented.user, rented.box
    account.address = (box.address, box.port, box.user)
    user.env |= {**account.environment(), "API_TOKEN": TOKEN}
    repository = user.repository(
        **{"boxstrap.yaml": PROFILE, "train.py": TRAIN, ".gitignore": "out/\n"}
    )
    user.agree()
    user.run("up", "--max-price", "0.6", "--identity", str(box.identity)).must(0)
    user.run("wait").must(0)
    for name in NAMES[1:]:
        secret = [TOKEN] if name == "third" else []
        user.run("run", "--", "python", "train.py", name, *secret)
        # A run is listed from its start, without asking the box.
        newest = user.run("runs", "--json").must(0).json()["runs"][0]
        assert (newest["name"], newest["box"]) == (f"train-{NAMES.index(name) + 1}", "vast-9001")
        user.run("wait").must(10 if name == "fails" else 0)
    # What is on a live box is listed without asking it.
    listed = user.run("runs", "--json").must(0).json()["runs"]
    assert [one["name"] for one in listed] == [f"train-{at}" for at in range(6, 0, -1)]
    assert {(one["log"]["where"], one["results"]["where"]) for one in listed} == {("box", "box")}
    look = user.run("--dry", "down", "--json").must(9).json()
    assert [one["kind"] for one in look["unsafe"]].count("log") == 6
    done = user.run("down").must(0)
    assert "destroyed, and no longer listed" in done.out
    assert account.destroyed == ["9001"]

    results = repository.root / "boxstrap-results/vast-9001"
    for at, name in enumerate(NAMES, 1):
        run = f"train-{at}"
        log = (results / run / "boxstrap-run/log").read_text()
        assert log.startswith(f"{name}: step 1 loss 0.8\n{name}: step 2 loss 0.7\n")
        kept = record(repository, "vast-9001", run)
        assert kept["run"]["rc"] == (1 if name == "fails" else 0)
        assert kept["run"]["commit"] == repository.git("rev-parse", "HEAD").strip()
        assert kept["metric"] == f"{name}: step 3 loss 0.6"
        assert (Path(kept["place"]) / "report.html").is_file()
        # Each result is its own run's, byte for byte, though all wrote to one path.
        assert (results / run / "out/model.pt").read_bytes() == name.encode()
        assert [one.name for one in (results / run / "out").iterdir()] == ["model.pt"]
    assert TOKEN.encode() not in texts(results)
    assert TOKEN.encode() not in texts(user.state)
    manifest = json.loads((results / "train-6/boxstrap-manifest.json").read_text())
    assert record(repository, "vast-9001", "train-6")["profile"] == manifest["profile"]

    check_from_home(user, repository)
    # Also from where the box was forgotten, and by its host.
    shutil.rmtree(user.state / "ended")
    listed = user.run("runs", "--json").must(0).json()["runs"]
    assert [one["name"] for one in listed] == [f"train-{at}" for at in range(6, 0, -1)]
    for host in ((), ("--host", "vast-9001")):
        assert "second: step 3" in user.run("logs", "--run", "train-2", *host).must(0).out


def check_from_home(user: User, repository: UserRepository) -> None:
    """Everything about runs works without the box, and without a network."""
    listed = user.run("runs", "--json").must(0).json()["runs"]
    assert {one["log"]["where"] for one in listed} == {"home"}
    assert all(one["box_gone"] for one in listed)
    text = user.run("runs").must(0).out
    assert re.search(r"train-4 +vast-9001 \(gone\) .*ended with exit code 1", text)
    assert "fifth: step 3 loss 0.6" in text
    done = user.run("logs", "--run", "train-2").must(0)
    assert "train-2 of vast-9001: from home, as of " in done.err
    assert done.out.startswith("second: step 1 loss 0.8\n")
    assert "\x1b" not in done.out
    assert "owned" not in done.out
    assert TOKEN not in done.text
    newest = user.run("logs", "--host", "vast-9001").must(0)
    assert newest.out.startswith("sixth: step 1")
    assert user.run("logs", "--run", "train-2", "--since", "1h").must(0).out == done.out
    assert "step 1" not in user.run("logs", "--run", "train-2", "--since", "1s").must(0).out
    followed = user.run("logs", "-f", "--run", "train-4").must(10)
    assert "train-4 ended with exit code 1" in followed.err
    status = user.run("status", "--run", "train-4").must(0)
    assert "from home, as of" in status.out
    assert "| ValueError: not this one" in status.out
    every = user.run("status", "--host", "vast-9001", "--json").must(0).json()["boxes"][0]
    assert [run["name"] for run in every["runs"]] == [f"train-{at}" for at in range(6, 0, -1)]
    page = user.run("report", "--run", "train-3", "--json").must(0).json()["report"]
    assert Path(page).parent == repository.root / "boxstrap-results/vast-9001/train-3"
    assert "<svg" in Path(page).read_text()
    missing = user.run("logs", "--host", "vast-9001", "--run", "train-9").must(2).err
    assert "it was given back, and of its runs came home:" in missing
