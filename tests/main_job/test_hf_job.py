"""A job of Hugging Face, rented at its simulated account, on a box of the rig."""

import json
import re
import time

import pytest

from tests.cli import RESULTS, Completed
from tests.main_job.conftest import Rent
from tests.providers.accounts import KEY, SimulatedBox, SimulatedClock, simulated
from tests.providers.renting_world import offers_at
from tests.waiting import wait_until

pytestmark = pytest.mark.sampled(of="module")
TRAIN = 'print("0.4", file=open("out/result", "w"))\n'
ENDS_WELL = """\
import signal, sys, time

def end(*_):
    print("saved", file=open("out/last", "w"))
    sys.exit(0)

signal.signal(signal.SIGTERM, end)
print("step", flush=True)
time.sleep(600)
"""
JOB = {"BOXSTRAP_JOB": "1", "JOB_ID": "9001", "ACCELERATOR": "t4-small"}


def test_up_at_hugging_face_rents_a_job_that_outlasts_its_lease_and_down_ends_it(
    rent: Rent,
) -> None:
    rented = rent("bare", used=True, environ=JOB)
    user, box = rented.user, rented.box
    with simulated("hf") as account:
        account.clock = SimulatedClock(time.time)
        account.loading_s, account.offers = 0.0, offers_at("hf")
        account.address = (box.address, box.port, box.user)
        user.env |= account.environment()
        user.repository(boxstrap__yaml=RESULTS, train__py=TRAIN)

        def up(*options: str) -> Completed:
            words = ("--provider=hf", "--max-price=0.6", f"--identity={box.identity}")
            return user.run("up", *words, "--set", "lease.hours=2", *options)

        refused = up("--set", "lease.then=stop").must(2).err
        assert "Hugging Face Jobs stops no box" in refused
        assert account.rented == []
        said = " ".join(up().must(0).err.split())
        assert "settings/keys alone: yours must be there, ssh-" in said
        assert "half an hour later" in said
        (job,) = account.boxes
        assert job.order["timeoutSeconds"] == 2 * 3600 + 1800
        terms = json.loads(box.run("cat ~/.boxstrap/lease.json"))
        assert (terms["seconds"], terms["then"], terms["ends"]) == (7200.0, "destroy", True)
        assert terms["rented"] + terms["seconds"] <= job.made + job.order["timeoutSeconds"] - 1700
        assert account.rented == ["9001"]
        # A setup by its id keeps the lease's end.
        by_id = ("setup", "--host", "hf:9001", "--set")
        user.run(*by_id, "lease.hours=2").must(0)
        assert json.loads(box.run("cat ~/.boxstrap/lease.json")) == terms
        lease = ("lease", "--host", "hf:9001", "--extend")
        assert "can't outlast it" in user.run(*lease, "3h").must(2).err
        assert "it ends in 2 h" in user.run(*lease, "10m").must(0).out
        # One that would last longer than the job is cut short.
        late = user.run(*by_id, "lease.hours=30").must(0).err
        assert "so its lease is 2 h 25 min" in " ".join(late.split())
        found = json.loads(box.run("cat ~/.boxstrap/lease.json"))
        assert found["seconds"] == pytest.approx(2 * 3600 + 1500, abs=60)
        everything = box.run("grep -rsl . ~/.boxstrap | xargs cat; cat /proc/*/environ; true")
        assert '"then":"destroy"' in everything
        assert "BOXSTRAP_JOB=1" in everything
        assert KEY not in everything
        down = user.run("down", "--host", "hf:9001").must(0).out
        assert "destroyed, and no longer listed" in down
        assert account.destroyed == ["9001"]
    (home,) = user.place.glob("boxstrap-results/*/*/out/result")
    assert home.read_text() == "0.4\n"


def test_runs_on_a_hugging_face_job_not_rented_by_up_are_asked_to_end_before_its_time_limit(
    rent: Rent,
) -> None:
    """It has no lease, no key, and nobody guards it."""
    rented = rent("bare", used=True)
    user, box = rented.user, rented.box
    with simulated("hf") as account:
        account.clock = SimulatedClock(time.time)
        job = SimulatedBox("a1", address=box.address, port=box.port, user=box.user)
        job.made = job.since = time.time()
        job.order = {"timeoutSeconds": 300 + 75, "ssh": {"enabled": True}}
        account.boxes = [job]
        user.env |= account.environment()
        user.repository(boxstrap__yaml=RESULTS, train__py=ENDS_WELL)
        identity = f"--identity={box.identity}"
        said = " ".join(user.run("setup", "--host", "hf:a1", identity).must(0).err.split())
        assert "by its own limit, which nothing moves" in said
        assert re.search(r"so its lease is (1 min|\d+ s)", said)
        wait_until(
            lambda: "last" in box.run("ls ~/homework/out; true").split(),
            lambda: box.run("cat ~/.boxstrap/lease.state"),
            pause=1,
        )
        assert time.time() < job.made + 300, "well before the job's own end"
        assert account.boxes == [job]
        assert "killed" not in user.run("status", "--host", "hf:a1").must(0).out
        state = json.loads(box.run("cat ~/.boxstrap/lease.state"))
        assert (state["held"], state["over"]) == ("no-key", "hours")
        user.run("down", "--host", "hf:a1").must(0)
    (home,) = user.place.glob("boxstrap-results/*/*/out/last")
    assert home.read_text() == "saved\n"
