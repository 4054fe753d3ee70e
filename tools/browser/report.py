"""The report of a real run shows its curves in Chromium, without a network; it and the page of
several runs are readable on a phone."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from tests.boxes import Rig
from tests.main_job.rented import Rented
from tests.main_job.settled import Settled
from tests.nvml import scenarios
from tests.nvml.stub import build_library
from tools.browser import browse

PROFILE = """\
version: 1
gpu: {smoke: none}
train:
  command: python train.py
  results: [out/]
  metrics: ["{step}: loss {loss}, dice is {dice}"]
"""
TRAIN = """\
import math, pathlib, sys, time
pathlib.Path("out/model.pt").write_bytes(bytes(100_000))
for step in range(int((sys.argv[1:] or ["400"])[0])):
    loss = 3 * math.exp(-step / 80) + 0.1 * math.sin(step)
    print(f"{step}: loss {loss:.4f}, dice is {1 - loss / 4:.4f}", flush=True)
    time.sleep(0.06)
"""


def main() -> None:
    """Do a run of 25 s on a box, and check its report."""
    user = Settled()
    user.repository(boxstrap__yaml=PROFILE, train__py=TRAIN)
    with tempfile.TemporaryDirectory() as folder, Rig(mirror=True) as rig:
        rented = Rented(user, rig.start("vast"))
        try:
            rented.box.show_card(build_library(Path(folder)), scenarios.A100)
            rented.run("setup").must(0)
            rented.run("wait").must(0)
            rented.run("pull").must(0)
            place = rented.run("report", "--json").must(0).json()["report"]
            rented.run("run", "--", "python train.py 40").must(0)
            rented.run("wait").must(0)
            both = ("report", "--run", "train-1", "--run", "train-2", "--json")
            compared = rented.run(*both).must(0).json()["report"]
            script = Path(__file__).with_suffix(".js")
            picture = Path(folder, "report.png")
            page = Path(place).read_text()
            seen = json.loads(browse(script, str(picture), f"file://{place}", f"file://{compared}"))
        finally:
            user.leave()
    assert hashlib.sha256(bytes(100_000)).hexdigest() in page, "the manifest's digest"
    plots = {plot["title"]: plot["curves"] for plot in seen["plots"]}
    assert {*seen["asked"]} == {f"file://{place}", f"file://{compared}"}, seen["asked"]
    for phone in seen["phone"]:
        assert phone["sideways"] <= 0, phone
        assert phone["letters"] >= 9, phone
        assert phone["beside"] == [], phone
        assert phone["plots"], phone
        assert min(phone["plots"]) > 0.8, phone
    assert (seen["problems"], seen["scripts"]) == ([], 0), seen["problems"]
    for title in ("loss by step", "dice by step"):
        (curve,) = plots[title]
        assert curve["width"] > 600, (title, curve)
        assert curve["height"] > 80, (title, curve)
        assert curve["hits"] == 5, (title, curve)
        assert curve["stroke"] not in ("none", ""), (title, curve)
    for title in ("GPU load", "GPU memory", "Processor", "Memory"):
        assert plots[title][0]["hits"] >= 4, (title, plots[title])
    assert sum(width > 100 for width in seen["bars"]) >= 1, seen["bars"]
