"""`data`: what is fetched by the box and what is sent from here, at its places before training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.boxes import Rig
from tests.data_server import DataServer
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented

pytestmark = pytest.mark.boxes

CERTIFICATE = "/etc/ssl/data-server.pem"
PROFILE = f"""\
version: 1
gpu: {{require: false}}
env: {{SSL_CERT_FILE: {CERTIFICATE}}}
python: {{requirements: []}}
data:
"""
TRAIN = """\
import os
for folder, _, names in sorted(os.walk(".")):
    for name in sorted(names):
        if folder.startswith("./data"):
            print("step 1", folder, name, os.path.getsize(f"{folder}/{name}"))
"""


@pytest.fixture
def server(mirror_rig: Rig, tmp_path: Path) -> Iterator[DataServer]:
    """On the rig's bridge, where boxes reach it."""
    made = DataServer(mirror_rig.mirror.host, tmp_path)
    yield made
    made.close()


def rented_with(rent: Rent, server: DataServer, items: str, kind: str = "vast") -> Rented:
    rented = rent(kind, used=True)
    rented.box.write(CERTIFICATE, server.certificate.read_text())
    profile = f"{PROFILE}{items}train: {{command: python train.py}}\n"
    made = rented.user.repository(boxstrap__yaml=profile, train__py=TRAIN)
    made.commit({".gitignore": "data/\nsets/\none.txt\n"})
    return rented


def test_data_is_at_its_place_before_training_and_is_looked_at_once(
    rent: Rent, server: DataServer
) -> None:
    sha256 = server.add("big.bin", b"x" * 3_000_000)
    rented = rented_with(
        rent,
        server,
        f"""\
  - {{from: {server.url("big.bin")}, to: data/fetched/, sha256: {sha256}}}
  - {{from: sets, to: data/sent, exclude: ["*.tmp"]}}
  - {{from: one.txt, to: /workspace/shared/}}
""",
    )
    root = rented.user.place
    (root / "sets/deep").mkdir(parents=True)
    (root / "sets/deep/a.txt").write_text("one")
    (root / "sets/b.tmp").write_text("stays")
    (root / "one.txt").write_text("1")
    first = rented.run("setup")
    assert "--consent" in first.err
    consent = first.must(2).err.split("--consent ")[1].split()[0]
    assert str(root / "sets") in first.err
    done = rented.run("setup", "--consent", consent).must(0)
    assert "step 1 ./data/fetched big.bin 3000000" in done.out
    assert "step 1 ./data/sent/deep a.txt 3" in done.out
    assert "b.tmp" not in done.out
    assert rented.box.read("/workspace/shared/one.txt") == "1"
    assert "data       ok" in done.err
    # What is there costs one look: nobody is asked, and nothing is to do.
    asked = len(server.asked)
    assert "nothing to do" in rented.run("setup").must(0).out
    assert len(server.asked) == asked
    # It is no work of the tree.
    assert "data" not in rented.as_user("git -C /workspace/homework status --porcelain")
    # What changed here is sent, and nothing else.
    (root / "sets/deep/c.txt").write_text("three")
    again = rented.run("setup", "--restart").must(0)
    assert "data       start  its settings changed" in again.err
    assert "step 1 ./data/sent/deep c.txt 5" in again.out
    assert len(server.asked) == asked
