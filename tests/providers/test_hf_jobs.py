"""Hugging Face Jobs: what no other box does, and that its library sends the same."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import UnreachableError
from bootstrap.providers import RefusedError, accounts
from bootstrap.providers.offer import AFTER_LEASE_S, RentedState, RentOrder, limit_s
from bootstrap.renting import offers_of
from tests.boxes.loopback import LoopbackBox
from tests.cli import User
from tests.providers.accounts import (
    KEY,
    LOADING_S,
    STARTED,
    SimulatedBox,
    SimulatedClock,
    simulated,
)
from tests.providers.renting_world import MARK, PUBLIC, RentingWorld

PROVIDER, IS_LISTED = "hf", False
DAY_S = 24 * 3600 + AFTER_LEASE_S
ACCELERATOR = {"type": "gpu", "model": "T4", "quantity": "1", "vram": "16 GB", "manufacturer": "x"}


def test_a_hugging_face_job_is_rented_found_by_its_name_and_cancelled(world: RentingWorld) -> None:
    account, simulation = world.account, world.simulation
    offers = offers_of([account], RentOrder(gpu_names=("a10g", "T4"), disk_gb=100))[0]
    assert [(one.id, one.price, one.memory_gib, one.disk_gb) for one in offers] == [
        ("a10g-small", 1.0, 24, 110),
        ("t4-small", 0.4, 16, 110),
        ("t4-medium", 0.6, 16, 110),
    ]
    job = account.rent(offers[0], RentOrder(lease_hours=3), MARK, PUBLIC)
    (found,) = account.find_mark(MARK)
    assert (found.id, found.state, found.address) == (job, RentedState.STARTING, "")
    simulation.clock.sleep(LOADING_S)
    box = world.seen(job)
    assert (box.state, box.user, box.address, box.port) == (
        *(RentedState.RUNNING, "root", "127.0.0.1"),
        22,
    )
    assert (box.price, box.gpu) == (1.0, "1 x A10G")
    assert box.ends == STARTED + 3 * 3600 + AFTER_LEASE_S
    account.destroy(job)
    account.destroy(job)
    ended = world.seen(job)
    assert ended.state is RentedState.GONE
    assert account.find_mark(MARK) == []
    assert simulation.destroyed == [job]


def test_boxstrap_sends_the_same_request_for_a_job_as_the_hugging_face_library(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = list[Any]()
    rent = world.simulation.rent

    def seen(offer: Any, label: str, order: Any) -> SimulatedBox:
        sent.append(order)
        return rent(offer, label, order)

    monkeypatch.setattr(world.simulation, "rent", seen)
    account = world.account
    order = RentOrder(lease_hours=2, image="python:3.12")
    ours = account.rent(offers_of([account], order)[0][0], order, MARK, PUBLIC)
    # As itself, it is turned away by the rule for our own requests alone.
    from huggingface_hub import HfApi  # it takes each worker a moment to import

    theirs = HfApi(endpoint=world.simulation.url, token=KEY)
    made = theirs.run_job(
        **{"image": "python:3.12", "command": ["sleep", "infinity"], "flavor": "t4-small"},
        **{"timeout": 2 * 3600 + AFTER_LEASE_S, "name": MARK, "ssh": True, "namespace": "me"},
        env={"BOXSTRAP_JOB": "1"},
    )
    assert json.dumps(sent[0], sort_keys=True) == json.dumps(sent[1], sort_keys=True)
    world.simulation.clock.sleep(LOADING_S)
    listed = {job.id for job in theirs.list_jobs(status=["RUNNING"], namespace="me")}
    assert listed == {box.id for box in account.boxes()} == {"71", "72", ours, made.id}
    job = theirs.inspect_job(job_id=ours, namespace="me")
    assert job.status.ssh_url == "ssh://root@127.0.0.1:22"
    assert job.labels == {"name": MARK}
    assert [one.name for one in theirs.list_jobs_hardware()][1:] == [
        one.id for one in world.simulation.offers
    ]
    theirs.cancel_job(job_id=made.id, namespace="me")
    assert world.simulation.destroyed == [made.id]
    world.simulation.violations.clear()  # it called itself by its own name


def test_the_limit_of_a_hugging_face_job_is_half_an_hour_after_its_lease() -> None:
    assert limit_s(RentOrder(), 2.0) == DAY_S
    assert limit_s(RentOrder(lease_hours=2.5), 2.0) == 9000 + AFTER_LEASE_S
    assert limit_s(RentOrder(lease_dollars=10.0), 2.0) == 5 * 3600 + AFTER_LEASE_S
    assert limit_s(RentOrder(lease_hours=3, lease_dollars=10.0), 2.0) == 3 * 3600 + AFTER_LEASE_S
    assert limit_s(RentOrder(lease_hours=8, lease_dollars=10.0), 2.0) == 5 * 3600 + AFTER_LEASE_S


def test_up_rents_another_hugging_face_job_after_the_first_reached_its_time_limit(
    world: RentingWorld,
) -> None:
    box, _ = world.up()
    simulation = world.simulation
    (job,) = world.ours
    assert job.order["timeoutSeconds"] == DAY_S
    simulation.clock.sleep(DAY_S + 1)
    seen = world.seen(box.box_id)
    assert (seen.state, seen.said) == (RentedState.GONE, "Job timeout")
    assert world.ours == []
    # Then another one is rented.
    assert world.up()[0].box_id != box.box_id
    world.check()
    assert simulation.destroyed == []


def test_a_hugging_face_job_without_ssh_is_refused_as_unreachable_with_that_reason(
    world: RentingWorld,
) -> None:
    boxes = world.simulation.boxes
    boxes[0].order = {"timeoutSeconds": 10**6}
    boxes[1].user = "-oProxyCommand=x y"
    found = {box.id: box for box in world.account.boxes()}
    assert [found[box_id].address for box_id in ("71", "72")] == ["", ""]
    assert "without --ssh" in found["71"].said
    with pytest.raises(UnreachableError, match="without --ssh"):
        accounts.find_rented("hf:71")


@pytest.mark.parametrize(
    "said",
    [
        {"flavor": [1]},
        {"labels": "x"},
        {"labels": {"name": 1}},
        {"status": {"stage": []}},
        {"status": {"stage": "RUNNING", "sshUrl": 1}},
        {"status": {"stage": "RUNNING", "message": {}}},
        {"createdAt": {"a": 1}},
    ],
)
def test_a_list_of_hugging_face_jobs_with_a_malformed_value_is_an_unreachable_error(
    world: RentingWorld, said: dict[str, object]
) -> None:
    account = world.account
    account.boxes()  # so it knows the user's name and the hardware
    owner = {"id": "1", "name": "n", "type": "user"}
    job = {"id": "71", "owner": owner, "status": {"stage": "RUNNING"}, "flavor": "x"}
    world.simulation.faults = [(200, [job])]
    assert [box.id for box in account.boxes()] == ["71"]
    world.simulation.faults = [(200, [{**job, **said}])]
    with pytest.raises(UnreachableError):
        account.boxes()


@pytest.mark.parametrize(
    "said",
    [
        {"name": []},
        {"unitLabel": {}},
        {"unitCostUSD": "x"},
        {"ephemeralStorage": 1},
        {"accelerator": "gpu"},
        {"accelerator": {**ACCELERATOR, "quantity": 1}},
        {"accelerator": {**ACCELERATOR, "vram": 1}},
        {"accelerator": {**ACCELERATOR, "quantity": "9" * 5000}},
    ],
)
def test_a_list_of_hugging_face_hardware_with_a_malformed_value_is_an_unreachable_error(
    world: RentingWorld, said: dict[str, object]
) -> None:
    one = {
        **dict.fromkeys(("name", "prettyName", "cpu", "ram", "ephemeralStorage"), "x"),
        **{"unitCostMicroUSD": 1, "unitCostUSD": 1.0, "unitLabel": "hour"},
        "accelerator": {**ACCELERATOR, "vram": "1.2.3 GB"},
    }
    world.simulation.faults = [(200, [one])]
    assert [offer.gpu for offer in world.account.catalog(RentOrder())] == ["T4"]
    world.simulation.faults = [(200, [{**one, **said}])]
    with pytest.raises(UnreachableError):
        world.account.catalog(RentOrder())


def test_a_refused_cancel_of_a_hugging_face_job_is_an_error_only_while_that_job_goes_on(
    world: RentingWorld,
) -> None:
    account, simulation = world.account, world.simulation
    assert account.find_mark(MARK) == []  # so it knows the user's name
    simulation.boxes.append(SimulatedBox("73"))
    simulation.faults = [(409, {"error": "not now"})]
    with pytest.raises(RefusedError, match="not now"):
        account.destroy("73")
    simulation.boxes[-1].state = "offline"
    simulation.faults = [(409, {"error": "it has ended"})]
    account.destroy("73")
    assert simulation.destroyed == []


def test_hugging_face_has_no_offers_for_a_volume_or_for_spot(world: RentingWorld) -> None:
    assert world.account.catalog(RentOrder(volume="me/bucket")) == []
    assert world.account.catalog(RentOrder(spot=True)) == []
    world.simulation.offers[0].count, world.simulation.offers[0].memory_gib = 4, 24
    (one, *_) = world.account.catalog(RentOrder())
    assert (one.gpu_count, one.memory_gib) == (4, 24)


def test_status_of_a_hugging_face_job_tells_its_end_and_down_cancels_it_alone(
    user: User, there: LoopbackBox
) -> None:
    Path(there.home, ".boxstrap").mkdir()
    with simulated("hf") as made:
        made.clock = SimulatedClock(time.time)
        ours, other = (SimulatedBox(key, port=there.port, user=there.user) for key in ("a1", "b2"))
        ours.made = ours.since = time.time() - 630
        ours.order = {"timeoutSeconds": 1800, "ssh": {"enabled": True}}
        made.boxes = [other, ours]
        # The Hub's own variables, as its library reads them.
        user.env |= {"HF_TOKEN": KEY, "HF_ENDPOINT": made.url}
        identity = ("--identity", str(there.identity))
        status = user.run("status", "--host", "hf:a1", *identity).must(0).text
        shown = " ".join(status.split())
        assert re.search(r"its job ends in 1[789] min", shown)
        assert "s by its own limit, which nothing moves, and all that is on it is lost" in shown
        assert "$0.50 an hour" not in shown  # its hardware is not listed: no price is made up
        (box,) = user.run("boxes", "--all", "--json").must(0).json()["boxes"][1:]
        assert (box["host"], box["known_as"]) == ("hf:a1", "hf-a1")
        assert box["ends"] == pytest.approx(ours.made + 1800, abs=2)
        asked = len(made.asked)
        assert re.search("ends in 1[789] min", user.run("logs", "--host", "hf-a1").text)
        assert len(made.asked) == asked  # each contact says so, and asks nobody
        done = user.run("down", "--host", "hf:a1").must(0).out
        assert "destroyed, and no longer listed" in done
        assert (made.destroyed, [one.id for one in made.boxes]) == (["a1"], ["b2"])
        assert "has no box a1" in user.run("status", "--host", "hf:a1", *identity).must(2).err
    written = (file for file in Path(there.home).rglob("*") if file.is_file())
    assert not [file for file in written if KEY.encode() in file.read_bytes()]
