"""Data from a bucket, results to a bucket; the S3 server checks signatures and expiry."""

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nanio", reason="the S3 server needs Python 3.11")

from bootstrap.transfer.buckets import EXPIRES_S
from tests.boxes import Rig
from tests.boxes.s3_server import REGION, S3Server
from tests.hostile.leaks import Planted, leaks
from tests.main_job.conftest import Rent
from tests.waiting import wait_until

TRAIN = """\
import pathlib, time
names = sorted(path.name for path in pathlib.Path("data/corpus").iterdir())
print("step 1", len(names), names[-1], flush=True)
out = pathlib.Path("out")
(out / "first.bin").write_bytes(b"first")
time.sleep(4)
(out / "last.bin").write_bytes(pathlib.Path("model/large.bin").read_bytes())
"""
PROFILE = """\
version: 1
gpu: {{require: false}}
env: {{AWS_ENDPOINT_URL: "{endpoint}", AWS_REGION: {region}}}
secrets: [RESULTS_KEY]
data:
- {{from: s3://corpus/many/, to: data/corpus, exclude: ["0[0-8]*"]}}
- {{from: s3://corpus/large.bin, to: model/}}
train:
  command: python train.py
  results: [out/]
  results_to: s3://results/mine
"""


@pytest.fixture
def server(mirror_rig: Rig, tmp_path: Path) -> Iterator[S3Server]:
    assert mirror_rig.mirror
    made = S3Server(mirror_rig.mirror.host, tmp_path / "buckets")
    yield made
    made.close()


def test_a_box_fetches_data_from_a_bucket_and_puts_its_results_into_one_after_consent(
    rent: Rent, server: S3Server
) -> None:
    for number in range(1003):
        server.put("corpus", f"many/{number:04}.txt", b"%d" % number)
    large = os.urandom(3_000_000)
    server.put("corpus", "large.bin", large)
    (server.folder / "results").mkdir()
    rented = rent("vast", used=True)
    profile = PROFILE.format(endpoint=server.endpoint, region=REGION)
    rented.user.repository(train__py=TRAIN, boxstrap__yaml=profile)
    env = {**server.variables(), "RESULTS_KEY": f"{server.box_key_id}:{server.box_secret}"}

    # The repository's author named the user's buckets, so the user is asked for consent.
    refused = rented.run("setup", "--json", **env).must(2).json()["error"]
    assert {(each["key"], each["takes"]) for each in refused["takes"]} == {
        ("secrets", "RESULTS_KEY"),
        ("data", "s3://corpus/many/"),
        ("data", "s3://corpus/large.bin"),
        ("train.results_to", "s3://results/mine"),
    }

    # As if it took hours: the first URLs have expired and are signed again.
    server.move_clock(EXPIRES_S + 60)
    back = threading.Thread(target=_once_refused, args=(server,))
    back.start()
    done = rented.run("setup", "--consent", refused["digest"], **env).must(0)
    back.join()
    assert "step 1 103 1002.txt" in done.out
    assert "X-Amz" not in done.out + done.err
    assert rented.box.run(f"sha256sum {rented.tree}/model/large.bin").split()[0] == _sha256(large)

    # The uploader was killed: the next setup starts it again, and trains nothing twice.
    rented.box.run("kill -9 $(pgrep -f bucket[.]upload_results)")
    rented.run("setup", **env).must(0)
    assert rented.runs() == ["train-1"]

    # No boxstrap runs on this machine any more: the box continues on its own.
    rented.as_user("until cat ~/.boxstrap/runs/*/train-1/exit; do sleep 0.1; done 2>/dev/null")
    wait_until(lambda: any(name.endswith("manifest.json") for name in server.objects("results")))
    wait_until(lambda: "whole" in rented.as_user("cat ~/.boxstrap/runs/*/*/uploaded"))
    found = {Path(name).name: body for name, body in server.objects("results").items()}
    manifest = json.loads(found.pop("boxstrap-manifest.json"))
    assert found == {"first.bin": b"first", "last.bin": large}
    assert manifest["complete"] is True
    assert {row["path"]: row["sha256"] for row in manifest["files"]} == {
        "out/first.bin": _sha256(b"first"),
        "out/last.bin": _sha256(large),
    }
    shown = rented.run("status").must(0).out
    assert "results: 2 files (3.0 MB) are in s3://results/mine/train-1-" in shown
    # Neither the user's key nor a URL signed with it is on the box or in the state kept here.
    planted = Planted({"key": server.secret, "key id": server.key_id, "sig": "X-Amz-Signature="})
    assert leaks(rented.box, planted) == []
    for path in rented.user.state.rglob("*"):
        assert not path.is_file() or not planted.found_in(path.read_bytes())


def _once_refused(server: S3Server) -> None:
    wait_until(lambda: any(" 403" in line for line in server.asked), pause=0.02)
    server.move_clock(0)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
