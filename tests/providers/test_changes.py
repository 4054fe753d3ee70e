"""Requests that change an account (rent, stop, destroy) are sent once, whatever the answer."""

import contextlib
from typing import Any

import pytest
from openapi_core import OpenAPI

from bootstrap.errors import NoOfferError, UnreachableError, UsageError
from bootstrap.providers import (
    PROVIDERS,
    ApiKey,
    Offer,
    RefusedError,
    RefusedKeyError,
    RentedState,
    RentOrder,
    UndecidedError,
)
from bootstrap.renting import offers_of
from tests.providers.accounts import (
    KEY,
    LOADING_S,
    SimulatedBox,
    SimulatedOffer,
    contract_of,
)
from tests.providers.azure_account import azure_id
from tests.providers.contract import OVERLAYS
from tests.providers.renting_world import CREATES, MARK, PUBLIC, RentingWorld

OTHER = "boxstrap-ba9876543210"
IS_LISTED = False
every_provider = pytest.mark.parametrize("world", PROVIDERS, indirect=True)
renting = pytest.mark.parametrize("world", ["vast", "runpod", "lambda"], indirect=True)
"""`test_paperspace.py`, `test_ec2.py`, `test_hf_jobs.py`, `test_google_cloud.py` and
`test_azure.py` have what those do otherwise."""


@renting
def test_a_rented_box_gets_the_ssh_key_and_an_address_once_up(world: RentingWorld) -> None:
    account, simulation = world.account, world.simulation
    order = RentOrder(gpu_names=("rtx_4090",), min_memory_gib=24, disk_gb=40)
    simulation.offers.reverse()
    offers = world.offers(order)
    assert [offer.id.partition("/")[0] for offer in offers] == ["10", "11", "12", "13"]
    assert offers[0].price == pytest.approx(0.3, abs=0.02)
    for _ in range(2):
        account.add_key(PUBLIC)
    assert len(simulation.keys) <= 1
    box_id = account.rent(offers[0], order, MARK, PUBLIC)
    assert PUBLIC in world.ours[0].keys
    assert not (account.box(box_id) or simulation).address
    simulation.clock.sleep(LOADING_S)
    box = account.box(box_id)
    assert box
    assert (box.state, box.address) == (RentedState.RUNNING, "127.0.0.1")


UNDECIDED = ("500 after", "500", "cut", "cut after", "nonsense after", "wrong types after")


@pytest.mark.sampled
@pytest.mark.parametrize("fault", UNDECIDED)
@every_provider
def test_renting_or_destroying_a_box_is_requested_only_once_when_the_answer_is_lost(
    world: RentingWorld, fault: str
) -> None:
    account, simulation = world.account, world.simulation
    account.add_key(PUBLIC)
    offer = world.offers()[0]
    before = len(simulation.changed)
    simulation.fault_on = {CREATES[simulation.provider]: fault}
    with pytest.raises(UndecidedError):
        account.rent(offer, RentOrder(), MARK, PUBLIC)
    changed = simulation.changed[before:]
    assert sum(each.startswith(CREATES[simulation.provider]) for each in changed) == 1
    assert changed[-1].startswith(CREATES[simulation.provider])
    # At Azure the group is found that it was to be made in, and given back.
    found = [box for box in account.find_mark(MARK) if box.state is not RentedState.BROKEN]
    assert len(simulation.rented) == ("after" in fault) == len(found)
    known = azure_id(OTHER) if simulation.provider == "azure" else "77"
    simulation.boxes[2:] = [SimulatedBox(known, label=OTHER)]
    account.box(known)  # Google is asked for the zone of one that is only a number
    simulation.faults_at = {len(simulation.asked): fault}
    # Of their answers to a DELETE only the status is read.
    is_unread = simulation.provider in {"runpod", "paperspace", "azure"}
    says_done = is_unread and fault == "wrong types after"
    with contextlib.nullcontext() if says_done else pytest.raises(UndecidedError):
        account.destroy(known)
    assert simulation.destroyed == ([known] if "after" in fault else [])


@every_provider
def test_a_rental_refused_with_429_is_requested_again_and_rents_one_box(
    world: RentingWorld,
) -> None:
    account, simulation = world.account, world.simulation
    account.add_key(PUBLIC)
    offer = world.offers()[0]
    simulation.fault_on = {CREATES[simulation.provider]: "429"}
    account.rent(offer, RentOrder(), MARK, PUBLIC)
    assert len(simulation.rented) == 1


@every_provider
def test_a_refused_rental_says_why_and_whether_another_offer_may_succeed(
    world: RentingWorld,
) -> None:
    account, simulation = world.account, world.simulation
    account.add_key(PUBLIC)
    offer = world.offers()[0]
    simulation.offers[0].fate = "taken"
    with pytest.raises(NoOfferError) as refused:
        account.rent(offer, RentOrder(), MARK, PUBLIC)
    assert not refused.value.is_final
    if simulation.provider != "lambda":
        simulation.offers[1].fate = "no money"
        other = world.offers()[-3]
        with pytest.raises(NoOfferError, match="balance") as refused:
            account.rent(other, RentOrder(), OTHER, PUBLIC)
        assert refused.value.is_final
    assert simulation.rented == []
    known = azure_id(MARK) if simulation.provider == "azure" else "1"
    simulation.boxes[2:] = [SimulatedBox(known, label=MARK)]
    account.box(known)  # Google and Azure look at first what they have not met
    simulation.faults = [(403, {"msg": f"not yours {KEY}", "message": "x", "detail": "x"})]
    with pytest.raises(RefusedError) as error:
        account.destroy(known)
    assert KEY not in str(error.value)
    simulation.faults = [(401, {})]
    with pytest.raises(RefusedKeyError, match="refuses the key"):
        account.destroy(known)


def test_the_contract_of_a_failed_vast_bid_is_destroyed_or_named_in_the_error_if_that_fails(
    world: RentingWorld,
) -> None:
    account, simulation = world.account, world.simulation
    simulation.offers = [
        SimulatedOffer("11", fate="failed bid"),
        SimulatedOffer("12", fate="failed bid without contract"),
        SimulatedOffer("13", fate="failed bid"),
    ]
    offers = world.offers(RentOrder(spot=True))
    assert offers[0].bid == 0.25
    for offer in offers[:2]:
        with pytest.raises(NoOfferError, match="bid failed"):
            account.rent(offer, RentOrder(spot=True), MARK, PUBLIC)
    assert simulation.rented == simulation.destroyed == ["9001"]
    simulation.faults_at = {len(simulation.asked) + 1: "500"}
    with pytest.raises(UndecidedError, match="left contract 9002"):
        account.rent(offers[2], RentOrder(spot=True), MARK, PUBLIC)
    assert [box.id for box in account.find_mark(MARK)] == ["9002"]


def test_with_a_vast_team_account_the_ssh_key_is_added_to_the_rented_box_and_not_to_the_account(
    world: RentingWorld,
) -> None:
    account, simulation = world.account, world.simulation
    simulation.is_team = True
    account.add_key(PUBLIC)
    assert simulation.keys == []
    account.rent(world.offers()[0], RentOrder(), MARK, PUBLIC)
    assert world.ours[0].keys == [PUBLIC]


def test_the_id_of_a_rented_box_is_returned_though_the_api_refuses_the_next_request(
    world: RentingWorld,
) -> None:
    """Once a box is rented, no error may say that nothing was done."""
    account, simulation = world.account, world.simulation
    offer = world.offers()[0]
    refused = 401, {"msg": "no"}
    simulation.fault_on = {"POST /api/v0/instances/": refused}
    assert account.rent(offer, RentOrder(), MARK, PUBLIC) == "9001"
    simulation.offers = [SimulatedOffer("11", fate="failed bid")]
    bid = world.offers(RentOrder(spot=True))[0]
    simulation.fault_on = {"DELETE /api/v0/instances/": refused}
    with pytest.raises(UndecidedError, match="left contract 9002"):
        account.rent(bid, RentOrder(spot=True), MARK, PUBLIC)


@renting
def test_volumes_left_in_an_account_are_listed_with_size(world: RentingWorld) -> None:
    account, simulation = world.account, world.simulation
    told = {
        "vast": {"id": 5, "disk_space": 100.0, "storage_total_cost": 0.02},
        "runpod": {"id": "v5", "name": "data", "size": 100, "dataCenter": "X", "type": "STANDARD"},
        "lambda": {"id": "f5", "name": "data", "bytes_used": 100e9, "region": {"name": "us-1"}},
    }
    simulation.volumes = [told[simulation.provider]]
    (left,) = account.leftovers()
    assert left.size_gb == 100
    assert left.price == (0.02 if simulation.provider == "vast" else None)


@renting
def test_box_volume_mounts_the_volume_and_offers_only_machines_that_can_mount_it(
    world: RentingWorld,
) -> None:
    account, simulation = world.account, world.simulation
    pods = {"id": "v5", "name": "", "size": 100, "dataCenter": "us-3", "type": "STANDARD"}
    near: dict[str, Any] = {
        "vast": {"id": 5, "disk_space": 100.0, "machine_id": 13},
        "runpod": pods,
        "lambda": {"id": "f5", "name": "data", "bytes_used": 1, "region": {"name": "us-3"}},
    }
    simulation.volumes = [near[simulation.provider]]
    names = {"vast": "5", "runpod": "v5", "lambda": "data"}
    order = RentOrder(volume=names[simulation.provider], volume_at="/data")
    account.add_key(PUBLIC)
    # It is on one machine, or in one place: no cheaper offer elsewhere can mount it.
    (offer,) = world.offers(order)
    assert "13" in offer.id
    account.rent(offer, order, MARK, PUBLIC)
    sent = world.ours[0].order
    with pytest.raises(UsageError, match="has no volume 99"):
        account.catalog(RentOrder(volume="99"))
    if simulation.provider == "lambda":
        assert sent["file_system_names"] == ["data"]
        mounts = [{"mount_point": "/data", "file_system_id": "f5"}]
        assert sent["file_system_mounts"] == mounts
        assert account.volume_place(order) == "/data"
        at_home = RentOrder(volume="data", image="lambda-stack-24-04")
        # Elsewhere than there it can't be mounted.
        assert account.volume_place(at_home) == "/lambda/nfs/data"
        account.rent(offer, at_home, MARK, PUBLIC)
        sent = world.ours[1].order
        assert (sent["file_system_mounts"], sent["image"]) == ([], {"family": "lambda-stack-24-04"})
        return
    if simulation.provider == "runpod":
        assert sent["mounts"] == {"network": [{"volumeId": "v5", "path": "/data"}]}
        assert sent["dataCenterIds"] == ["us-3"]
    else:
        assert sent["volume_info"]["volume_id"] == 5
        with pytest.raises(UsageError, match="is a number"):
            account.catalog(RentOrder(volume="x"))


@renting
def test_up_reads_offers_without_an_api_key_where_the_provider_needs_none(
    world: RentingWorld,
) -> None:
    account = PROVIDERS[world.simulation.provider](None)
    if account.offers_need_key:
        with pytest.raises(RefusedKeyError, match="without a key"):
            offers_of([account], RentOrder())[0]
    else:
        assert len(offers_of([account], RentOrder())[0]) == 4
        world.simulation.faults = [(500, {})]
        assert len(offers_of([account], RentOrder())[0]) == 4


def test_renting_at_an_unreachable_provider_rents_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOXSTRAP_VAST_API", "http://127.0.0.1:9")
    account = PROVIDERS["vast"](ApiKey(KEY, "a test"))
    offer = Offer("vast", "1", "RTX 4090", 1, 0.5)
    with pytest.raises(UnreachableError) as error:
        account.rent(offer, RentOrder(), MARK, PUBLIC)
    assert not isinstance(error.value, UndecidedError)


@pytest.mark.parametrize(
    ("order", "missed"),
    [
        (RentOrder(gpu_names=("A100",)), "no A100"),
        (RentOrder(gpu_names=("RTX4090",)), ""),
        (RentOrder(gpu_names=("RTX 4090 24GB",)), ""),
        (RentOrder(gpu_names=("RTX 4090 48GB",)), "no RTX 4090 48GB"),
        (RentOrder(gpu_names=("A100 24GB", "rtx_4090-24gb")), ""),
        (RentOrder(gpu_count=2), "1 GPUs, not 2"),
        (RentOrder(min_memory_gib=24), ""),
        (RentOrder(min_memory_gib=25.1), "24 GiB each, not 25.1"),
        (RentOrder(min_cuda="12.4"), ""),
        (RentOrder(min_cuda="12.10"), "CUDA 12.4, not 12.10"),
        (RentOrder(disk_gb=101), "100 GB of disk, not 101"),
        (RentOrder(region="US"), ""),
        (RentOrder(region="texas, us"), ""),
        (RentOrder(region="U"), "in Texas, US, not U"),
        (RentOrder(max_price=0.5), ""),
        (RentOrder(max_price=0.49), "$0.01 an hour too expensive"),
    ],
)
def test_an_offer_names_the_profile_key_of_each_requirement_that_it_does_not_meet(
    order: RentOrder, missed: str
) -> None:
    offer = Offer("vast", "1", "RTX 4090", 1, 0.5, None, 24, "12.4", region="Texas, US")
    offer = Offer(**{**vars(offer), "disk_gb": 100})
    assert offer.misses(order) == ([missed] if missed else [])


PODS = "/v2/pods"
OFFER = "/api/v0/asks/5/"
RENTED = b'{"success": true, "new_contract": 5}'


@pytest.mark.parametrize(
    ("provider", "asked", "body", "status", "answer", "is_kept"),
    [
        ("vast", "GET /api/v1/instances/?limit=25", b"", 200, b'{"instances": [{"id": 1}]}', True),
        ("vast", "GET /api/v1/instances/?pages=2", b"", 200, b"{}", False),
        ("vast", "GET /api/v1/instances/?limit=many", b"", 200, b"{}", False),
        ("vast", "GET /api/v1/instances/?limit=30", b"", 200, b"{}", False),
        ("vast", "GET /api/v1/instances/", b"", 200, b'{"instances": [{"colour": "red"}]}', False),
        ("vast", "GET /api/v1/instances/", b"", 200, b'{"instances": [{"id": "1"}]}', False),
        ("vast", "GET /api/v1/nothing/", b"", 200, b"{}", False),
        (
            "vast",
            f"PUT {OFFER}",
            b'{"image": "x", "runtype": "ssh_direc ssh_proxy"}',
            200,
            RENTED,
            True,
        ),
        ("vast", f"PUT {OFFER}", b'{"image": "x", "runtype": "ssh_direct"}', 200, RENTED, False),
        ("vast", f"PUT {OFFER}", b'{"disk": 10}', 200, RENTED, False),
        ("vast", f"PUT {OFFER}", b'{"image": "x", "colour": "red"}', 200, RENTED, False),
        ("vast", f"PUT {OFFER}", b'{"image": "x"}', 200, b'{"success": true}', True),
        ("vast", "POST /api/v0/bundles/", b'{"gpus": 1}', 200, b'{"offers": []}', False),
        ("runpod", f"GET {PODS}", b"", 200, b'{"pods": []}', True),
        ("runpod", f"GET {PODS}", b"", 200, b'{"pods": [{"id": "x"}]}', False),
        ("runpod", f"GET {PODS}", b"", 200, b'{"pods": [], "more": 1}', False),
        ("runpod", f"POST {PODS}", b'{"gpu": {"id": "x"}}', 201, b"{}", False),
        ("runpod", f"DELETE {PODS}/x", b"", 204, b"", True),
        ("runpod", f"DELETE {PODS}/x", b"", 203, b"", False),
    ],
)
def test_a_request_or_answer_that_breaks_a_providers_openapi_document_fails_the_simulation(
    provider: str, asked: str, body: bytes, status: int, answer: bytes, is_kept: bool
) -> None:
    method, target = asked.split()
    sent = (("Authorization", f"Bearer {KEY}"), ("Content-Type", "application/json"))
    said = contract_of(provider).check(method, target, sent, body, status, answer)
    assert (said == "") == is_kept


@pytest.mark.parametrize("provider", OVERLAYS)
def test_the_simulated_api_document_of_each_provider_is_valid_openapi(provider: str) -> None:
    OpenAPI.from_dict(contract_of(provider).document)
