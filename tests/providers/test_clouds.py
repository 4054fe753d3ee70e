"""What EC2, Google Cloud and Azure do alike, and what every offer would refuse: places, quotas,
permissions, rooms that are full."""

from collections.abc import Callable
from typing import Any

import pytest

from bootstrap.errors import NoOfferError, UnreachableError
from bootstrap.providers import RentedState, RentOrder
from bootstrap.providers.azure_api import AzureApi
from bootstrap.renting import no_offer, offers_of, rental
from tests.providers.accounts import SimulatedOffer
from tests.providers.azure_account import FAMILY, NO_ROOM, REGION, SUBSCRIPTION
from tests.providers.google_account import PROJECT, STOCK_OUT, ZONE
from tests.providers.renting_world import MARK, PUBLIC, RentingWorld

IS_LISTED = False
SPOT = RentOrder(spot=True, max_price=1.5)
MORE = {"ec2": "ask AWS for more", "gcp": "iam-admin/quotas", "azure": "QuotaMenuBlade"}
"""By what one is told how to have more of a quota."""
PARTS = {"gcp": "disks", "azure": "groups"}
"""What a box consists of beside the machine, and is left if nobody deletes it."""
NONE_LEFT = "InsufficientInstanceCapacity"


@pytest.fixture(autouse=True)
def _no_token_of_before() -> None:
    AzureApi._tokens.clear()


def parts(world: RentingWorld) -> list[str]:
    return [*getattr(world.simulation.own, PARTS.get(world.simulation.provider, ""), ())]


@pytest.mark.parametrize("world", ["ec2", "gcp", "azure"], indirect=True)
def test_a_rental_requested_twice_at_a_cloud_rents_a_single_box(world: RentingWorld) -> None:
    box_id = world.rent()
    assert world.rent() == box_id
    assert world.simulation.rented == [box_id]
    assert [box.id for box in world.account.find_mark(MARK)] == [box_id]


@pytest.mark.parametrize(
    ("world", "kind", "place", "fates", "said"),
    [
        ("ec2", "g5.xlarge", "us-east-1{}", ("none left", "taken"), NONE_LEFT),
        ("gcp", "g2-standard-4", "us-central1-{}", ("none left", "failed bid"), STOCK_OUT),
        (
            *("azure", "Standard_NC4as_T4_v3", "eastus{}"),
            ("taken", "none left", "failed bid", "failed bid without contract"),
            f"{NO_ROOM}: Allocation failed",
        ),
    ],
    indirect=["world"],
)
def test_up_rents_in_the_next_zone_when_a_cloud_zone_is_full_and_leaves_nothing_behind(
    world: RentingWorld, kind: str, place: str, fates: tuple[str, ...], said: str
) -> None:
    simulation = world.simulation
    names = [place.format(n if kind.startswith("S") else "abcde"[n]) for n in range(len(fates) + 1)]
    simulation.offers = [
        SimulatedOffer(kind, price=0.5 + at / 100, region=region, fate=fate)
        for at, (region, fate) in enumerate(zip(names, (*fates, "runs"), strict=True))
    ]
    if simulation.provider == "azure":
        simulation.own.machine_s, simulation.own.delete_s = 20.0, 90.0
    box, _ = world.up()
    assert (box.machine, box.spot) == (f"{kind}/{names[-1]}", False)
    assert len(world.creates) == len(names)  # Google answers each with 200
    assert [one.id for one in world.ours] == [box.box_id]
    simulation.clock.sleep(90)
    assert [one.id for one in world.account.boxes()] == [box.box_id]
    assert parts(world) == [box.mark] * (simulation.provider in PARTS)
    assert [each.state.value for each in rental.all_rentals()] == ["rented"]
    world.down(box)
    simulation.clock.sleep(90)
    assert [one for one in world.account.boxes() if one.name] == parts(world) == []
    for offer in simulation.offers:
        offer.fate = "none left"
    with pytest.raises(NoOfferError, match=said) as refused:
        world.up()
    assert not refused.value.is_final
    assert refused.value.hint == "Offers go quickly: run the same command again."
    assert world.ours == []


@pytest.mark.parametrize("fault", ["500", "cut after", "429"])
@pytest.mark.parametrize("world", ["gcp", "azure"], indirect=True)
def test_a_half_made_cloud_box_that_can_not_be_deleted_at_once_is_deleted_by_a_later_up(
    world: RentingWorld, fault: str
) -> None:
    world.simulation.offers[0].fate = "failed bid"
    world.simulation.fault_on = {"DELETE /": fault}
    box, _ = world.up()
    assert [one.id for one in world.ours] == [box.box_id]
    assert parts(world) == [box.mark]


@pytest.mark.parametrize(
    ("world", "goes_on", "asks"),
    [
        ("gcp", "operation_s", f"/compute/v1/projects/{PROJECT}/zones/{ZONE}/operations"),
        ("azure", "deployment_s", "/subscriptions"),
    ],
    indirect=["world"],
)
def test_a_cloud_rental_whose_progress_is_slow_or_unreadable_still_gives_the_one_box_it_created(
    world: RentingWorld, goes_on: str, asks: str
) -> None:
    """Its answer named the box."""
    setattr(world.simulation.own, goes_on, 9000.0)
    box, _ = world.up()
    assert world.simulation.rented == [box.box_id]
    world.down(box)
    setattr(world.simulation.own, goes_on, 3.0)
    account, offer = world.account, world.offers()[0]
    world.simulation.fault_on = {f"GET {asks}": "wrong types after"}
    assert account.rent(offer, RentOrder(), MARK, PUBLIC) == world.simulation.rented[-1]


@pytest.mark.parametrize(
    ("world", "quotas", "order", "said"),
    [
        # A company's two use eight on demand.
        ("ec2", {"g": 12}, RentOrder(), ""),
        ("ec2", {"g": 8}, RentOrder(), "4 vCPUs, and 0 are left of L-DB2E81BA"),
        ("ec2", {"g": 4}, SPOT, ""),
        ("ec2", {"g": 0}, SPOT, "4 vCPUs, and 0 are left of L-3819A6DF"),
        ("gcp", {"GPUS_ALL_REGIONS": 0}, RentOrder(), "0 are left of GPUS_ALL_REGIONS"),
        ("gcp", {"GPUS_ALL_REGIONS": 0}, SPOT, "0 are left of GPUS_ALL_REGIONS"),
        (
            *("gcp", {"NVIDIA_L4_GPUS": 0}, RentOrder(lease_hours=200)),
            "left of NVIDIA_L4_GPUS, us-central1",
        ),
        # The preemptible ones' serves, too.
        ("gcp", {"NVIDIA_L4_GPUS": 0}, RentOrder(lease_hours=20), ""),
        ("gcp", {"NVIDIA_L4_GPUS": 0}, RentOrder(spot=True, lease_hours=200), ""),
        ("azure", {FAMILY: 0}, RentOrder(), f"4 vCPUs, and 0 are left of {FAMILY}"),
        ("azure", {"cores": 0}, RentOrder(), "4 vCPUs, and 0 are left of cores"),
        ("azure", {"cores": 0}, SPOT, ""),
        ("azure", {"lowPriorityCores": 0}, RentOrder(), ""),
        ("azure", {"lowPriorityCores": 0}, SPOT, "4 vCPUs, and 0 are left of lowPriorityCores"),
    ],
    indirect=["world"],
)
def test_up_leaves_out_cloud_offers_beyond_a_quota_and_its_hint_names_that_quota(
    world: RentingWorld, quotas: dict[str, float], order: RentOrder, said: str
) -> None:
    world.simulation.quotas = quotas
    fitting, others = offers_of([world.account], order)
    assert len(fitting) == (0 if said else 4)
    if said:
        hint = no_offer(others, order).hint
        assert said in hint
        assert MORE[world.simulation.provider] in hint
    assert world.creates == []


@pytest.mark.parametrize(
    ("world", "order", "quota", "said", "advice", "is_final"),
    [
        ("ec2", RentOrder(), "g", "VcpuLimitExceeded", "Ask AWS for more of L-DB2E81BA", False),
        ("ec2", SPOT, "g", "MaxSpotInstanceCountExceeded", "for more of L-3819A6DF", False),
        # With none at all no other offer would do.
        (
            *("gcp", RentOrder(), "GPUS_ALL_REGIONS", "Quota 'GPUS_ALL_REGIONS' exceeded"),
            *("iam-admin/quotas", True),
        ),
        (
            *("gcp", RentOrder(), "NVIDIA_L4_GPUS", "Quota 'NVIDIA_L4_GPUS' exceeded"),
            *("iam-admin/quotas", False),
        ),
        ("azure", RentOrder(), FAMILY, "exceeding approved", "QuotaMenuBlade", False),
    ],
    indirect=["world"],
)
def test_a_rental_refused_for_a_quota_says_which_and_how_to_raise_it(
    world: RentingWorld, order: RentOrder, quota: str, said: str, advice: str, is_final: bool
) -> None:
    account, offer = world.account, world.offers(order)[0]
    world.simulation.quotas = {quota: 0}
    with pytest.raises(NoOfferError, match=said) as refused:
        account.rent(offer, order, MARK, PUBLIC)
    assert advice in refused.value.what
    assert refused.value.is_final == is_final  # another family, or region, has its own
    assert world.simulation.rented == parts(world) == []


_USAGES = f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations/{REGION}"


@pytest.mark.parametrize(
    ("world", "quotas", "faults", "count"),
    [
        ("ec2", {"g": 0}, {"fault_on": {"POST /GetServiceQuota": "forbidden"}}, 4),
        ("gcp", {"GPUS_ALL_REGIONS": 0}, {"faults_at": {1: "forbidden"}}, 4),
        ("azure", {"cores": 0}, {"fault_on": {f"GET {_USAGES}": "forbidden"}}, 3),
    ],
    indirect=["world"],
)
def test_all_cloud_offers_are_shown_if_the_user_may_not_read_the_quotas(
    world: RentingWorld, quotas: dict[str, float], faults: dict[str, Any], count: int
) -> None:
    """A launch says what they refuse."""
    for name, value in {"quotas": quotas, **faults}.items():
        setattr(world.simulation, name, value)
    assert len(world.offers()) == count


def with_own(**changed: object) -> Callable[[RentingWorld], None]:
    """Return what changes the answers of the provider's account."""
    return lambda world: vars(world.simulation.own).update(changed)


def with_fault(asks: str, fault: Any = "forbidden") -> Callable[[RentingWorld], None]:
    return lambda world: world.simulation.fault_on.update({asks: fault})


def without_money(world: RentingWorld) -> None:
    world.simulation.offers[0].fate = "no money"


_422 = 422, {"title": "Unprocessable", "status": 422, "detail": "no such field"}


@pytest.mark.parametrize(
    ("world", "changed", "said"),
    [
        ("runpod", with_fault("POST /v2/pods", _422), "would refuse the same request"),
        ("lambda", without_money, "account is not active"),
        ("ec2", with_fault("POST /RunInstances"), "lack this permission"),
        ("gcp", without_money, "no billing account"),
        ("gcp", with_own(may_not="instances.create"), "lack this permission"),
        ("azure", with_own(may_not="resourceGroups/write"), "lacks this permission"),
        ("azure", with_own(may_not="deployments/write"), "lacks this permission"),
        ("azure", with_own(is_disabled=True), "its credit is used up, or a balance is owed"),
        ("hf", with_fault("POST /api/jobs", (402, {"error": "Pre-paid credit"})), "Pre-paid"),
        ("hf", with_fault("POST /api/jobs", (403, {"error": "only to PRO users"})), "to PRO users"),
    ],
    indirect=["world"],
)
def test_up_stops_after_one_refusal_that_every_other_offer_would_also_get(
    world: RentingWorld, changed: Callable[[RentingWorld], None], said: str
) -> None:
    changed(world)
    with pytest.raises(NoOfferError, match=said) as refused:
        world.up()
    assert refused.value.is_final
    assert len(world.creates) <= 1
    assert world.simulation.rented == parts(world) == []


@pytest.mark.parametrize(
    ("world", "said"),
    [("ec2", NONE_LEFT), ("gcp", STOCK_OUT), ("azure", f"{NO_ROOM}: Allocation failed")],
    indirect=["world"],
)
def test_up_does_not_destroy_a_stopped_cloud_box_that_it_can_not_start(
    world: RentingWorld, said: str
) -> None:
    box, _ = world.up()
    world.ours[0].state, world.ours[0].wakes = "stopped", "refused"
    with pytest.raises(UnreachableError, match=said):
        world.up()
    assert world.simulation.destroyed == []
    assert world.seen(box.box_id).state is RentedState.STOPPED
