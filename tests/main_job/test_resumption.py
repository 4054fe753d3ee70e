"""A spot box is taken away: its run goes on on another box, and the money counts over both."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import S3Store

pytest.importorskip("nanio", reason="the S3 server needs Python 3.11")

from bootstrap.transfer.buckets import s3_settings
from tests.boxes import Rig
from tests.boxes.metadata_server import MetadataServer
from tests.boxes.s3_server import REGION, S3Server
from tests.cli import User
from tests.faults.plugin import Faults
from tests.main_job.conftest import Rent
from tests.providers.accounts import SimulatedAccount, SimulatedOffer, simulated
from tests.waiting import wait_until

pytestmark = pytest.mark.sampled(of="module")

PROFILE = """\
version: 1
gpu: {{require: false}}
rent: {{spot: true}}
env: {{AWS_ENDPOINT_URL: "{endpoint}", AWS_REGION: {region}}}
secrets: [RESULTS_KEY]
train:
  command: python train.py
  resume: python train.py --resume
  results: [out/]
  results_to: s3://results/mine
lease: {{dollars: 20}}
"""
AT_HOME = """\
version: 1
gpu: {require: false}
rent: {spot: true}
train: {command: python train.py, resume: python train.py --resume, results: [out/]}
lease: {dollars: 20}
"""
TRAIN = """\
import signal, sys, time
from pathlib import Path

last = Path("out/last")
step = int(last.read_text()) if "--resume" in sys.argv else 0
print("goes on from" if step else "begins at", step, flush=True)
newest = Path("out/newest.ckpt")
if newest.is_symlink():
    print("by its link", newest.read_text(), flush=True)

def save(*_):
    (part := Path("out/last.part")).write_text(str(step))
    part.replace(last)
    newest.is_symlink() or newest.symlink_to("last")
    print("saved at", step, flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
while True:
    step += 1
    time.sleep(0.1)
"""
# Each checkpoint is two files, and their number.
SAVES = """\
import sys, time
from pathlib import Path

out = Path("out")
out.mkdir(exist_ok=True)
step = max([int(one.name[5:]) for one in out.glob("step-*")], default=0)
if "--resume" in sys.argv:
    assert (out / f"step-{step}/b").read_text() == str(step), "a half one"
    print("goes on from", step, flush=True)
while True:
    step += 1
    print(f"step {step} loss {1 / step:.3f}", flush=True)
    (out / f"step-{step}").mkdir()
    for name in "ab":
        (out / f"step-{step}" / name).write_text(str(step))
    (out / "last").write_text(str(step))
    time.sleep(3)
"""


@pytest.fixture
def account() -> Iterator[SimulatedAccount]:
    with simulated("vast") as made:
        made.loading_s = 0.0
        made.offers = [SimulatedOffer(str(11 + at), price=0.4 + at / 10) for at in range(3)]
        yield made


@pytest.fixture
def buckets(mirror_rig: Rig, tmp_path: Path) -> Iterator[S3Server]:
    assert mirror_rig.mirror
    made = S3Server(mirror_rig.mirror.host, tmp_path / "buckets")
    (made.folder / "results").mkdir()
    yield made
    made.close()


def _with_bucket(user: User, account: SimulatedAccount, buckets: S3Server) -> User:
    """Give a user that account, a bucket, and a repository whose results go there."""
    user.env |= account.environment() | buckets.variables()
    user.env["RESULTS_KEY"] = f"{buckets.box_key_id}:{buckets.box_secret}"
    profile = PROFILE.format(endpoint=buckets.endpoint, region=REGION)
    ignored = "out/\nboxstrap-results/\n"
    user.repository(boxstrap__yaml=profile, train__py=TRAIN, **{".gitignore": ignored})
    user.agree()
    return user


def test_up_resumes_the_run_of_a_spot_box_taken_away_on_a_new_box_within_the_money_left(
    rent: Rent,
    account: SimulatedAccount,
    buckets: S3Server,
    faults: Faults,
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    first, second = rent("vast", used=True), rent("vast", used=True)
    user = _with_bucket(first.user, account, buckets)
    up = ("up", "--max-price", "0.6", "--identity", str(first.box.identity))

    account.address = (first.box.address, first.box.port, first.box.user)
    server = MetadataServer(first.box, "ec2", tmp_path)
    request.addfinalizer(server.close)
    user.run(*up).must(0)
    with faults.attempt("spot box taken away, run goes on elsewhere") as attempt:
        wait_until(lambda: len(server.asked) > 2)
        server.interrupt(40)
        wait_until(lambda: _uploaded(buckets))
        saved = int(_uploaded(buckets))
        assert saved > 0
        assert "EC2 took its box back" in user.run("status").must(0).out
        server.close()
        first.box.power_off()
        account.boxes[0].state = "stopped"
        # Somebody else's outbid box is not started, and nothing is rented without its results.
        account.address = (second.box.address, second.box.port, second.box.user)
        assert "no run train-7" in user.run(*up, "--resume", "train-7").must(2).err
        asked = ("--set", "lease.dollars=0.001", "--resume", "train-1")
        assert "nothing is left" in user.run(*up, *asked).must(9).err
        assert account.rented == ["9001"]
        attempt.begin()
        done = user.run(*up, "--resume", "train-1", "--json").must(0).json()
        attempt.noticed()
    assert account.rented == ["9001", "9002"]
    assert account.boxes[0].state == "stopped"
    assert done["resumes"] == {"box": "vast-9001", "run": "train-1"}
    assert done["results_from"].startswith("s3://results/mine/train-1-")
    assert done["spent_before"] > 0
    log = user.run("logs", "--host", "vast-9002").must(0).out
    assert f"goes on from {saved}\n" in log
    terms = json.loads(second.box.run("cat ~/.boxstrap/lease.json"))
    assert terms["dollars"] == pytest.approx(20 - done["spent_before"], abs=0.011)
    status = user.run("status", "--host", "vast-9002", "--json").must(0).json()
    assert status["dollars_before"] == pytest.approx(done["spent_before"], abs=1e-3)
    # The same once more rents and starts nothing.
    again = user.run(*up, "--resume", "vast-9001/train-1", "--json").must(0).json()
    assert (again["id"], again["run"]["name"]) == (done["id"], done["run"]["name"])
    assert account.rented == ["9001", "9002"]
    assert "may still be alive" in user.run(*up, "--resume", "train-1").must(2).err


def test_guard_resumes_an_outbid_run_on_a_new_box_once_but_never_a_finished_run(
    rent: Rent, account: SimulatedAccount, buckets: S3Server
) -> None:
    """Vast.ai gives no notice: the box is outbid, and stopped."""
    first, second = rent("vast", used=True), rent("vast", used=True)
    user = _with_bucket(first.user, account, buckets)
    account.address = (first.box.address, first.box.port, first.box.user)
    user.run("up", "--max-price", "0.6", "--identity", str(first.box.identity)).must(0)
    first.box.run("echo 7 >/workspace/homework/out/last")
    wait_until(lambda: any(name.endswith("/last") for name in buckets.objects("results")))
    wait_until(lambda: any(name.endswith("manifest.json") for name in buckets.objects("results")))
    guard = ("guard", "--once", "--resume", "--max-price", "0.6", "--json")
    assert user.run(*guard).must(0).json()["resumed"] == []
    account.boxes[0].state = "stopped"
    first.box.power_off()
    account.address = (second.box.address, second.box.port, second.box.user)
    name = next(one for one in buckets.objects("results") if one.endswith("manifest.json"))
    live = buckets.objects("results")[name]
    # It finished, or somebody stopped it, after this machine had looked: nothing is rented.
    for ended in ("exit 0", "stop"):
        _put(
            buckets, name, json.dumps({**json.loads(live), "live": False, "ended": ended}).encode()
        )
        assert user.run(*guard).must(0).json()["resumed"] == []
    _put(buckets, name, live)
    # Nobody is there to agree to a price.
    assert "nobody said what it may cost" in user.run("guard", "--once", "--resume").must(2).text
    assert account.rented == ["9001"]
    (done,) = user.run(*guard).must(0).json()["resumed"]
    assert account.rented == ["9001", "9002"]
    assert done["resumes"] == {"box": "vast-9001", "run": "train-1"}
    assert "goes on from 7\n" in user.run("logs", "--host", "vast-9002").must(0).out
    assert user.run(*guard).must(0).json()["resumed"] == []
    assert account.rented == ["9001", "9002"]
    assert account.boxes[0].state == "stopped"


def test_up_resume_is_refused_until_results_are_pulled_and_local_files_match_those_of_the_run(
    rent: Rent, account: SimulatedAccount
) -> None:
    first, second = rent("vast", used=True), rent("vast", used=True)
    user = first.user
    user.env |= account.environment()
    home = PROFILE.format(endpoint="http://192.0.2.1", region=REGION)
    home = home.replace("  results_to: s3://results/mine\n", "")
    home = home.replace("secrets: [RESULTS_KEY]\n", "")
    ignored = "out/\nboxstrap-results/\n"
    repository = user.repository(boxstrap__yaml=home, train__py=TRAIN, **{".gitignore": ignored})
    user.agree()
    (repository.root / "train.py").write_text(f"{TRAIN}# not committed\n")
    up = ("up", "--max-price", "0.6", "--identity", str(first.box.identity))
    account.address = (first.box.address, first.box.port, first.box.user)
    user.run(*up).must(0)
    resume = (*up, "--resume", "train-1")
    assert "may still be alive" in user.run(*resume).must(2).err
    log = "/workspace/.boxstrap/runs/*/train-1/log"
    first.box.run(f"until grep 'begins at 0' {log}; do sleep 0.1; done")
    user.run("stop").must(0)
    saved = first.box.read("/workspace/homework/out/last")
    account.boxes[0].state = "stopped"
    assert "are at home or in a bucket" in user.run(*resume).must(9).err
    account.boxes[0].state = "running"
    user.run("pull").must(0)
    account.boxes[0].state = "stopped"
    first.box.power_off()
    account.address = (second.box.address, second.box.port, second.box.user)
    (repository.root / "train.py").write_text(f"{TRAIN}# something else\n")
    assert "that is not what stands in this folder" in user.run(*resume).must(9).err
    (repository.root / "train.py").write_text(f"{TRAIN}# not committed\n")
    assert account.rented == ["9001"]
    said = user.run(*resume).must(0)
    assert "train-1 of vast-9001 goes on as train-1 of vast-9002, by python" in said.out
    assert "vast-9001 is stopped, and its disk still costs" in said.out
    assert f"goes on from {saved}\n" in user.run("logs", "--host", "vast-9002").must(0).out
    assert second.box.run("ls -F /workspace/homework/out").split() == ["last", "newest.ckpt@"]


def test_up_resume_continues_from_the_last_pulled_checkpoint_after_the_box_was_destroyed(
    rent: Rent, account: SimulatedAccount
) -> None:
    boxes = [rent("vast", used=True) for _ in range(3)]
    user = boxes[0].user
    user.env |= account.environment()
    ignored = "out/\nboxstrap-results/\n"
    user.repository(boxstrap__yaml=AT_HOME, train__py=SAVES, **{".gitignore": ignored})
    user.agree()
    account.addresses = [(one.box.address, one.box.port, one.box.user) for one in boxes[:2]]
    key = ("--identity", str(boxes[0].box.identity))
    up = ("up", "--max-price", "0.6", *key)
    user.run(*up).must(0)
    for record in user.state.glob("rentals/*.json"):
        document = json.loads(record.read_text())
        record.write_text(json.dumps({**document, "asked": document["asked"] - 3600}))
    boxes[0].as_user("cd ~/.boxstrap/runs/*/train-1; echo $(($(<started) - 3600)) >started")
    pull = boxes[0].begin("pull", "--watch", host="vast-9001")
    here = user.place / "boxstrap-results/vast-9001/train-1"
    wait_until(lambda: len(list(here.glob("out/step-*/b"))) > 1, pull.said)
    boxes[0].box.power_off()
    pull.kill()
    pull.end()
    account.boxes.pop()
    # A half one, as if this machine had gone too; and what was cut short, or is nobody's.
    (here / "out/step-90").mkdir()
    (here / "out/step-90/a").write_text("90")
    (here / "out/last").write_text("9")
    last = max(int(one.parent.name[5:]) for one in here.glob("out/step-*/b"))
    assert "step 1 loss" in user.run("logs", "--host", "vast-9001").must(0).out
    page = user.run("report", "--host", "vast-9001", "--json").must(0).json()["report"]
    assert "loss" in Path(page).read_text()
    # The next box is gone before anything of it came home.
    done = user.run(*up, "--resume", "train-1", "--json").must(0)
    assert "not all of it came home whole: out/last, out/step-90/a" in done.text
    assert done.json()["spent_before"] == pytest.approx(0.4, rel=0.2)
    assert done.json()["first_lines"][0] == f"goes on from {last}"
    boxes[1].box.power_off()
    account.boxes.pop()
    third = ("--host", boxes[2].box.host_string, *key, "--resume")
    assert "there is no run train-9" in user.run("run", *third, "train-9").must(2).err
    again = user.run("run", *third, "train-1", "--json").must(0).json()
    assert again["resumes"] == {"box": "vast-9002", "run": "train-1"}
    assert again["first_lines"][0] == f"goes on from {last}"
    assert sorted(boxes[2].box.folders(f"{boxes[2].tree}/out"))[-1:] != ["step-90"]
    # The same once more starts nothing.
    same = user.run("run", *third, "vast-9002/train-1", "--json").must(0).json()
    assert (same["id"], same["run"]["name"]) == (again["id"], again["run"]["name"])
    assert boxes[2].runs() == ["train-1"]


def _put(buckets: S3Server, name: str, content: bytes) -> None:
    settings: Any = s3_settings("results", buckets.variables())
    options: Any = {"allow_http": True}
    obstore.put(S3Store("results", config=settings, client_options=options), name, content)


def _uploaded(buckets: S3Server) -> str:
    found = buckets.objects("results")
    last = next((body for name, body in found.items() if name.endswith("/last")), b"")
    manifest = next((body for name, body in found.items() if name.endswith("manifest.json")), b"{}")
    return last.decode() if json.loads(manifest).get("complete") else ""
