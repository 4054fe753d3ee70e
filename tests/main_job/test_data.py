"""`data`: fetched by the box or sent from this machine, in place before training."""

import io
import os
import re
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.boxes import Rig
from tests.data_server import DataServer
from tests.main_job.conftest import Rent
from tests.main_job.rented import Rented

pytestmark = pytest.mark.sampled(of="module")

RESULT = "os.makedirs('out', exist_ok=True); open('out/model', 'w').write('a model')\n"
CERTIFICATE = "/etc/ssl/data-server.pem"
PROFILE = f"""\
version: 1
gpu: {{require: false}}
env: {{SSL_CERT_FILE: {CERTIFICATE}}}
python: {{requirements: []}}
"""
TRAINS = "train: {command: python train.py}\n"
TRAIN = """\
import os
for folder, _, names in sorted(os.walk(".")):
    for name in sorted(names):
        if folder.startswith("./data"):
            print("step 1", folder, name, os.path.getsize(f"{folder}/{name}"))
"""


NAMES = ("example.org", "huggingface.co")


@pytest.fixture
def server(mirror_rig: Rig, tmp_path: Path) -> Iterator[DataServer]:
    """A data server on the rig's bridge, where boxes reach it."""
    made = DataServer(mirror_rig.mirror.host, tmp_path, port=443, names=NAMES)
    yield made
    made.close()


def rented_with(rent: Rent, server: DataServer, items: str, **variant: Any) -> Rented:
    rented = rent("vast", used=True, **variant)
    rented.box.write(CERTIFICATE, server.certificate.read_text())
    made = rented.user.repository(boxstrap__yaml=f"{PROFILE}{items}", train__py=TRAIN)
    made.commit({".gitignore": "sets/\n"})
    return rented


def test_data_of_a_profile_is_there_before_training_and_is_not_sent_again(
    rent: Rent, server: DataServer
) -> None:
    sha256 = server.add("big.bin", b"x" * 3_000_000)
    rented = rented_with(
        rent,
        server,
        f"""\
data:
  - {{from: {server.url("big.bin")}, to: data/fetched/, sha256: {sha256}}}
  - {{from: sets, to: data/sent, exclude: ["*.tmp"]}}
  - {{from: ../one.txt, to: /workspace/shared/}}
{TRAINS}""",
    )
    root = rented.user.place
    (root / "sets/deep").mkdir(parents=True)
    (root / "sets/deep/a.txt").write_text("one")
    (root / "sets/b.tmp").write_text("stays")
    (root.parent / "one.txt").write_text("1")
    # What is outside the repository needs consent, its own folders don't.
    first = rented.run("setup").must(2)
    assert str(root.parent / "one.txt") in first.err
    assert str(root / "sets") not in first.err
    consent = first.err.split("--consent ")[1].split()[0]
    done = rented.run("setup", "--consent", consent).must(0)
    assert "step 1 ./data/fetched big.bin 3000000" in done.out
    assert "step 1 ./data/sent/deep a.txt 3" in done.out
    assert "b.tmp" not in done.out
    assert rented.box.read("/workspace/shared/one.txt") == "1"
    assert "data       ok" in done.err
    # Data in place is only checked: no server is asked, and there is nothing to do.
    asked = len(server.asked)
    assert "nothing to do" in rented.run("setup").must(0).out
    # Data does not count as a change of the tree.
    assert "data" not in rented.as_user("git -C /workspace/homework status --porcelain")
    # As on a volume that was kept: the step's stamp is gone, the data is there.
    rented.box.run("rm /workspace/.boxstrap/steps/homework-*/data.ok")
    assert "data       ok" in rented.run("setup").must(0).err
    # Only what changed here is sent, over a link that breaks during the transfer.
    (root / "sets/deep/c.bin").write_bytes(os.urandom(40_000_000))
    again = rented.begin("setup", "--restart")
    parts = "/workspace/homework/data/sent/.boxstrap-parts"
    while not rented.box.run(f"ls {parts} 2>/dev/null || true"):
        assert again.process.poll() is None
        time.sleep(0.05)
    rented.box.kill_sshd()
    rented.box.start_sshd()
    done = again.end().must(0)
    assert "data       start  its data changed" in done.err
    assert "step 1 ./data/sent/deep c.bin 40000000" in done.out
    # A new run finds it too.
    assert "step 1 ./data/sent/deep c.bin" in rented.run("run", "--", "python train.py").must(0).out
    assert len(server.asked) == asked


def corpus() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        info = tarfile.TarInfo("books/one.txt")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"one\n"))
    return out.getvalue()


def test_the_commands_of_the_data_page_bring_data_to_the_box_and_results_home(
    rent: Rent, server: DataServer
) -> None:
    """Uses the page's profile and its first commands; its URLs lead to the test's server."""
    page = (Path(__file__).parents[2] / "docs/data.md").read_text(encoding="utf-8")
    profile = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0]
    commands = re.findall(r"^```\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0].splitlines()
    rented = rented_with(rent, server, "")
    rented.box.run(f"echo {server.host} {' '.join(NAMES)} >>/etc/hosts")
    server.add("corpus.tar", corpus())
    server.add("datasets/me/set/train.parquet", b"p" * 500)
    server.add("datasets/me/set/README.md", b"read me")
    rented.run("setup", "--name", "my-box").must(0)
    user, root = rented.user, rented.user.place
    (root / "boxstrap.yaml").write_text(f"{PROFILE}{profile}")
    (root / "train.py").write_text(TRAIN + RESULT)
    (root / ".gitignore").write_text("data/\n")
    (user.home / "sets").mkdir()
    (user.home / "sets/labels.csv").write_text("1,2\n")
    (root / "data/corpus").mkdir(parents=True)
    (root / "data/corpus/more.txt").write_text("more")
    user.agree()
    said = ""
    for command in commands:
        program, *words = command.partition("#")[0].split()
        assert program == "boxstrap"
        said += user.run(*words).must(0).out
    for line in ("corpus/books one.txt 4", "set train.parquet 500", "data labels.csv 4"):
        assert f"step 1 ./data{'/' * (line[0] != 'd')}{line.removeprefix('data')}" in said
    assert "README.md" not in said
    assert rented.box.read("/workspace/homework/data/corpus/more.txt") == "more"
    (brought,) = (root / "boxstrap-results").glob("*/train-1/out/model")
    assert brought.read_text() == "a model"
