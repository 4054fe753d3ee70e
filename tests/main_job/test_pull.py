"""`pull`: results of a run are fetched, once or while it trains; what is not safe is reported.

The box is this machine. All tests share it and one user.
"""

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli import OWN_MACHINE, User, UserRepository
from tests.used_here import seem_set_up
from tests.waiting import slowness, wait_until

PROFILE = OWN_MACHINE + "train: {command: python train.py, results: [out/, model.pt]}\n"
TRAIN = """\
import os, time
from pathlib import Path

print("step 1", flush=True)
out = Path("out")
with (out / "log.txt").open("a", buffering=1) as log:
    for step in (1, 2):
        log.write(f"step {step}\\n")
        folder = out / f"checkpoint-{step}"
        folder.mkdir()
        for name in ("model.bin", "optimizer.bin"):
            with (folder / name).open("wb") as file:
                for _ in range(4):
                    file.write(os.urandom(1 << 20))
                    file.flush()
                    time.sleep(0.1)
        while not Path("go").exists():
            time.sleep(0.05)
        Path("go").unlink()
Path("model.pt").write_bytes(b"the end")
"""
TO_LOCAL = ("--host", "local")


class PullingUser:
    """A repository, the box that it trains on, and the pulled results."""

    def __init__(self, folder: Path) -> None:
        self.user = seem_set_up(User(folder / "home"))
        self.repository: UserRepository = self.user.repository(
            boxstrap__yaml=PROFILE, train__py=TRAIN
        )
        self.done = self.user.run("setup", *TO_LOCAL).must(0)

    @property
    def tree(self) -> Path:
        return self.user.home / "work" / self.repository.root.name

    def place(self, run: str) -> Path:
        return self.repository.root / "boxstrap-results/local" / run

    def manifest(self, run: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.place(run) / MANIFEST).read_text())
        return document

    def go(self, *, wait: bool = True) -> None:
        """Let the training continue."""
        (self.tree / "go").touch()
        wait_until(lambda: not (self.tree / "go").exists() or not wait)

    def receipts(self) -> list[Path]:
        return list(self.user.state.glob("boxes/*/receipts/*/*.json"))


MANIFEST = "boxstrap-manifest.json"


def same(here: Path, there: Path) -> bool:
    return here.is_file() and here.read_bytes() == there.read_bytes()


@pytest.fixture(scope="module")
def puller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PullingUser]:
    made = PullingUser(tmp_path_factory.mktemp("pull"))
    yield made
    made.user.run("stop", *TO_LOCAL, "--all")


def test_pull_brings_complete_files_during_a_run_and_all_at_its_end(puller: PullingUser) -> None:
    user, place = puller.user, puller.place("train-1")
    wait_until((puller.tree / "out/checkpoint-1/optimizer.bin").exists)
    refused = user.run("pull", *TO_LOCAL).must(9)
    assert "out/log.txt: a process has it open for writing" in refused.err
    assert "--watch" in refused.err
    names = ("model.bin", "optimizer.bin")
    for name in names:
        assert same(place / "out/checkpoint-1" / name, puller.tree / "out/checkpoint-1" / name)
    assert not (place / "out/log.txt").exists()
    (receipt,) = puller.receipts()  # of what is here
    assert json.loads(receipt.read_text())["live"]
    assert puller.manifest("train-1")["live"]
    assert puller.repository.git("status", "--porcelain") == ""
    with_watch = user.begin("pull", *TO_LOCAL, "--watch")
    with_watch.await_said("watching train-1")
    puller.go()
    wait_until((puller.tree / "out/checkpoint-2/optimizer.bin").exists)
    wait_until(lambda: (puller.tree / "out/checkpoint-2/optimizer.bin").stat().st_size == 4 << 20)
    complete = time.monotonic()
    wait_until((place / "out/checkpoint-2/optimizer.bin").exists)
    assert time.monotonic() - complete < 10 * slowness()
    puller.go()
    watched = with_watch.end().must(0)
    assert "out/checkpoint-2/model.bin" in watched.err
    assert "train-1: 4 files" in watched.out
    for name in ("log.txt", *(f"checkpoint-{step}/{name}" for step in (1, 2) for name in names)):
        assert same(place / "out" / name, puller.tree / "out" / name)
    assert same(place / "model.pt", puller.tree / "model.pt")
    document = puller.manifest("train-1")
    assert (document["complete"], document["live"], len(document["files"])) == (True, False, 6)
    assert document["commit"] == puller.repository.git("rev-parse", "HEAD").strip()
    assert re.fullmatch("[0-9a-f]{64}", document["profile"])
    assert [receipt] == puller.receipts()
    assert not json.loads(receipt.read_text())["live"]
    assert receipt.name == "train-1.json"


def test_pull_to_a_folder_brings_the_paths_in_the_profile_of_a_run_without_a_list_else_its_log(
    puller: PullingUser, tmp_path: Path
) -> None:
    (noted,) = puller.user.home.glob("work/.boxstrap/runs/*/train-1/results")
    assert noted.read_text() == "out/\nmodel.pt\n"
    noted.rename(tmp_path / "noted")
    to = tmp_path / "there"
    found = puller.user.run("pull", *TO_LOCAL, "--to", str(to), "--json").must(0).json()
    assert len(found["landed"]) == 6
    assert same(to / "model.pt", puller.tree / "model.pt")
    assert noted.read_text() == "out/\nmodel.pt\n"  # by that pull
    noted.unlink()
    profile = puller.repository.root / "boxstrap.yaml"
    text = profile.read_text()
    profile.write_text(text.replace(", results: [out/, model.pt]", ""))
    without = puller.user.run("pull", *TO_LOCAL).must(0).out
    assert "its profile names none" in without
    assert "boxstrap-run" in without  # its log comes home all the same
    assert (
        "profile names none; its log (" in puller.user.run("pull", *TO_LOCAL, "--all").must(0).out
    )
    profile.write_text(text)
    os.rename(tmp_path / "noted", noted)  # noqa: PTH104 - of another place
