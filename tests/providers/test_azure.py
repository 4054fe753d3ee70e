"""What Azure does otherwise than other providers: groups, deployments, deallocation, `az`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import NoOfferError, UnreachableError, UsageError
from bootstrap.link.registry import ask_account
from bootstrap.link.target import parse_host
from bootstrap.onbox.lease.instance import HOLD
from bootstrap.profile.load import read_profile
from bootstrap.providers import azure_api
from bootstrap.providers.accounts import PROVIDERS, find_account, find_rented
from bootstrap.providers.api import ApiKey, PartialListError, RefusedKeyError, UndecidedError
from bootstrap.providers.azure import LONGEST_HOLD_S, Azure
from bootstrap.providers.azure_api import AzureApi, reason_of
from bootstrap.providers.offer import AFTER_LEASE_S, RentedBox, RentedState, RentOrder
from bootstrap.renting import rental, teardown
from bootstrap.renting.order import accounts_for, no_offer, offers_of
from tests.cli import User
from tests.providers.accounts import (
    FAULTS,
    KEY,
    LOADING_S,
    SimulatedBox,
    SimulatedOffer,
    simulated,
)
from tests.providers.azure_account import (
    FAMILY,
    NO_ROOM,
    OTHER,
    REGION,
    SUBSCRIPTION,
    AzureAnswers,
    azure_id,
    config_folder,
)
from tests.providers.renting_world import (
    CREATES,
    MARK,
    PUBLIC,
    STARTS,
    RentingWorld,
    azure_offers,
    rent,
    renting_world,
)

ANOTHER = "boxstrap-ba9876543210"
SPOT = RentOrder(spot=True, max_price=1.5)
GROUPS = f"/subscriptions/{SUBSCRIPTION}/resourcegroups/"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[RentingWorld]:
    AzureApi._tokens.clear()
    with renting_world("azure", monkeypatch) as made:
        made.simulation.tells_time = True
        azure_of(made).deployment_s = 3.0
        yield made
        assert {"71", "72"} <= {box.id for box in made.simulation.boxes}


def azure_of(world: RentingWorld) -> AzureAnswers:
    assert world.simulation.azure
    return world.simulation.azure


def account_at(world: RentingWorld) -> Azure:
    account = PROVIDERS["azure"](ApiKey("", "a test"))
    assert isinstance(account, Azure)
    return account


def seen(world: RentingWorld, box_id: str) -> RentedBox:
    found = account_at(world).box(box_id)
    assert found
    return found


def creates(world: RentingWorld) -> list[str]:
    return [each for each in world.simulation.changed if "/deployments/" in each]


def made_of(world: RentingWorld, mark: str) -> dict[str, Any]:
    """What a template asked for, by the last word of its type."""
    template = azure_of(world).deployments[mark]["template"]
    return {each["type"].rpartition("/")[2]: each for each in template["resources"]}


def test_all_of_a_box_is_in_a_group_of_its_own_and_it_has_no_right_to_anything(
    world: RentingWorld,
) -> None:
    box_id = rent(world, RentOrder(disk_gb=80, lease_hours=10))
    assert box_id == azure_id(MARK)
    group = azure_of(world).groups[MARK]
    tags = {"boxstrap": MARK, "boxstrap-price": "0.526000"}
    assert group == {"location": REGION, "tags": {**tags, "boxstrap-stops-after": "37800"}}
    made = made_of(world, MARK)
    vm = made["virtualMachines"]
    assert "identity" not in vm
    disk = vm["properties"]["storageProfile"]["osDisk"]
    assert (disk["diskSizeGB"], disk["deleteOption"]) == (80, "Delete")
    (nic,) = vm["properties"]["networkProfile"]["networkInterfaces"]
    assert nic["properties"]["deleteOption"] == "Delete"
    way = made["networkInterfaces"]["properties"]["ipConfigurations"][0]["properties"]
    assert way["publicIPAddress"]["properties"]["deleteOption"] == "Delete"
    login = vm["properties"]["osProfile"]
    assert login["linuxConfiguration"]["disablePasswordAuthentication"] is True
    (key,) = login["linuxConfiguration"]["ssh"]["publicKeys"]
    assert key == {"path": "/home/azureuser/.ssh/authorized_keys", "keyData": PUBLIC}
    assert "priority" in vm["properties"]
    assert "evictionPolicy" not in vm["properties"]
    (rule,) = made["networkSecurityGroups"]["properties"]["securityRules"]
    assert (rule["properties"]["destinationPortRange"], rule["properties"]["access"]) == (
        *("22", "Allow"),
    )
    assert KEY not in json.dumps(made)
    box = seen(world, box_id)
    assert (box.state, box.name, box.is_spot) == (RentedState.STARTING, MARK, False)
    assert (box.price, box.user, box.address) == (0.526, "azureuser", "")
    world.simulation.clock.sleep(LOADING_S)
    assert seen(world, box_id).address == "127.0.0.1"
    assert "azure" not in HOLD  # which would end by its shutdown, and be paid for


def test_a_small_disk_is_as_large_as_the_image_needs(world: RentingWorld) -> None:
    rent(world, RentOrder(disk_gb=20))
    disk = made_of(world, MARK)["virtualMachines"]["properties"]["storageProfile"]["osDisk"]
    assert disk["diskSizeGB"] == 64


def test_a_deployment_that_is_there_already_is_waited_for(world: RentingWorld) -> None:
    account = account_at(world)
    offer = offers_of([account], RentOrder())[0][0]
    azure_of(world).deployment_s = 9.0
    world.simulation.fault_on = {CREATES["azure"]: "cut after"}
    with pytest.raises(UndecidedError):
        account.rent(offer, RentOrder(), MARK, PUBLIC)
    # Twice it is one box.
    assert account.rent(offer, RentOrder(), MARK, PUBLIC) == azure_id(MARK)
    assert account.rent(offer, RentOrder(), MARK, PUBLIC) == azure_id(MARK)
    assert world.simulation.rented == [azure_id(MARK)]
    # That it failed is seen, too.
    world.simulation.offers[1].fate = "none left"
    second = offers_of([account], RentOrder())[0][1]
    world.simulation.fault_on = {CREATES["azure"]: "cut after"}
    with pytest.raises(UndecidedError):
        account.rent(second, RentOrder(), ANOTHER, PUBLIC)
    with pytest.raises(NoOfferError, match=NO_ROOM):
        account.rent(second, RentOrder(), ANOTHER, PUBLIC)
    assert ANOTHER not in azure_of(world).groups


def test_without_room_the_next_is_taken_and_nothing_is_left(world: RentingWorld) -> None:
    fates = ("taken", "none left", "failed bid", "failed bid without contract", "runs")
    sizes = ("NC4as_T4_v3", "NC8as_T4_v3", "NC16as_T4_v3", "NC4as_T4_v3", "NC8as_T4_v3")
    world.simulation.offers = [
        SimulatedOffer(f"Standard_{size}", price=0.5 + at / 10, region=f"eastus{at}", fate=fate)
        for at, (size, fate) in enumerate(zip(sizes, fates, strict=True))
    ]
    azure_of(world).machine_s, azure_of(world).delete_s = 20.0, 90.0
    box, _ = world.up()
    assert box.machine == "Standard_NC8as_T4_v3/eastus4"
    assert len(creates(world)) == 5
    assert [one.id for one in world.ours] == [box.box_id]
    world.simulation.clock.sleep(90)
    assert [one.id for one in account_at(world).boxes()] == [box.box_id]
    assert [*azure_of(world).groups] == [*azure_of(world).deployments] == [box.mark]
    assert [each.state.value for each in rental.all_rentals()] == ["rented"]
    world.down(box)
    world.simulation.clock.sleep(90)
    assert [one for one in account_at(world).boxes() if one.name] == []
    world.simulation.offers = world.simulation.offers[1:2]
    with pytest.raises(NoOfferError, match=f"{NO_ROOM}: Allocation failed") as refused:
        world.up()
    assert not refused.value.is_final
    assert world.ours == []


@pytest.mark.parametrize("fault", ["500", "cut after", "429"])
def test_half_a_box_that_can_t_be_deleted_at_once_is_deleted_later(
    world: RentingWorld, fault: str
) -> None:
    world.simulation.offers[0].fate = "failed bid"
    world.simulation.fault_on = {f"DELETE {GROUPS}": fault}
    box, _ = world.up()
    assert [one.id for one in world.ours] == [box.box_id]
    assert [*azure_of(world).groups] == [box.mark]


def test_half_a_box_that_is_locked_is_not_forgotten(world: RentingWorld) -> None:
    world.simulation.offers[0].fate = "failed bid"
    azure_of(world).is_locked = True
    account = account_at(world)
    offer = offers_of([account], RentOrder())[0][0]
    with pytest.raises(UndecidedError, match="perhaps left parts of one: it refuses"):
        account.rent(offer, RentOrder(), MARK, PUBLIC)
    (half,) = account.find_mark(MARK)
    assert half.state is RentedState.BROKEN
    assert NO_ROOM in half.said
    with pytest.raises(UnreachableError, match="a lock"):
        world.up()
    assert [each.state.value for each in rental.all_rentals()] == ["leaving"]
    azure_of(world).is_locked = False
    box, _ = world.up()
    assert {one.id for one in world.ours} == {box.box_id, azure_id(MARK)}
    # A machine that goes on being deleted counts against the quota: it is waited for.
    azure_of(world).machine_s = 9999.0
    world.simulation.offers[1].fate = "failed bid"
    second = next(x for x in offers_of([account], RentOrder())[0] if "NC8as" in x.id)
    with pytest.raises(UndecidedError, match="still being deleted"):
        account.rent(second, RentOrder(), ANOTHER, PUBLIC)


def test_a_group_in_which_nothing_was_made_is_given_back(world: RentingWorld) -> None:
    """As of a command that was killed between its two requests."""
    world.simulation.fault_on = {CREATES["azure"]: "cut"}
    box, _ = world.up()
    assert len(creates(world)) == 2
    assert [*azure_of(world).groups] == [box.mark]
    ended = [each for each in rental.all_rentals() if each.state.value == "ended"]
    assert [each.mark for each in ended] != [box.mark]
    azure_of(world).groups[MARK] = {"location": REGION, "tags": {"boxstrap": MARK}}
    (half,) = account_at(world).find_mark(MARK)
    assert half.state is RentedState.BROKEN
    assert half.said == "nothing was made in its resource group"
    assert {one.id for one in account_at(world).boxes()} == {box.box_id, azure_id(MARK)}


def test_a_request_that_never_left_leaves_no_group(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FAULTS, "401", (False, (401, {"error": {"code": "x", "message": "no"}})))
    account = account_at(world)
    offer = offers_of([account], RentOrder())[0][0]
    world.simulation.fault_on = {CREATES["azure"]: "401"}
    with pytest.raises(RefusedKeyError):
        account.rent(offer, RentOrder(), MARK, PUBLIC)
    assert azure_of(world).groups == {}


def test_a_deployment_that_goes_on_is_no_reason_to_rent_another(world: RentingWorld) -> None:
    azure_of(world).deployment_s = 9000.0
    box, _ = world.up()
    assert world.simulation.rented == [box.box_id]
    world.down(box)
    azure_of(world).deployment_s = 3.0
    account = account_at(world)
    offer = offers_of([account], RentOrder())[0][0]
    world.simulation.fault_on = {"GET /subscriptions": "wrong types after"}
    assert account.rent(offer, RentOrder(), MARK, PUBLIC) == world.simulation.rented[-1]


def test_spot_is_deleted_when_it_is_taken_back_and_costs_no_more_than_agreed(
    world: RentingWorld,
) -> None:
    box, _ = world.up(order=SPOT)
    assert (box.spot, box.price) == (True, pytest.approx(0.526 * 0.4))
    vm = made_of(world, box.mark)["virtualMachines"]["properties"]
    assert (vm["priority"], vm["evictionPolicy"]) == ("Spot", "Delete")
    assert vm["billingProfile"] == {"maxPrice": 1.5}
    assert seen(world, box.box_id).is_spot is True
    world.simulation.boxes.remove(world.ours[0])
    account = account_at(world)
    assert account.box(box.box_id).state is RentedState.GONE  # type: ignore[union-attr]
    assert account.boxes() == []
    assert account.find_mark(box.mark) == []
    # Its group stays, and says so.
    (left,) = account.leftovers()
    assert (left.kind, left.name) == ("resource group", box.mark)
    rent(world, RentOrder(spot=True), ANOTHER)
    vm = made_of(world, ANOTHER)["virtualMachines"]["properties"]
    assert vm["billingProfile"] == {"maxPrice": -1}


@pytest.mark.parametrize(
    ("quota", "order", "said"),
    [
        (FAMILY, RentOrder(), f"4 vCPUs, and 0 are left of {FAMILY}"),
        ("cores", RentOrder(), "4 vCPUs, and 0 are left of cores"),
        ("cores", SPOT, ""),
        ("lowPriorityCores", RentOrder(), ""),
        ("lowPriorityCores", SPOT, "4 vCPUs, and 0 are left of lowPriorityCores"),
    ],
)
def test_a_quota_is_read_before_anything_is_offered(
    world: RentingWorld, quota: str, order: RentOrder, said: str
) -> None:
    world.simulation.quotas = {quota: 0}
    fitting, others = offers_of([account_at(world)], order)
    if not said:
        assert len(fitting) == 4
        return
    assert fitting == []
    hint = no_offer(others, order).hint
    assert said in hint
    assert "QuotaMenuBlade" in hint
    assert creates(world) == []


def test_a_size_that_the_subscription_may_not_have_is_no_offer(world: RentingWorld) -> None:
    azure_of(world).restricted = {"Standard_NC4as_T4_v3"}
    fitting, others = offers_of([account_at(world)], RentOrder())
    assert {offer.id.partition("/")[0] for offer in fitting} == {
        *("Standard_NC8as_T4_v3", "Standard_NC16as_T4_v3"),
    }
    assert all("your subscription may not have" in offer.lacks for offer in others)


def test_a_quota_that_is_exceeded_is_said_with_what_to_do(world: RentingWorld) -> None:
    account = account_at(world)
    offer = offers_of([account], RentOrder())[0][0]
    world.simulation.quotas = {FAMILY: 0}
    with pytest.raises(NoOfferError, match="exceeding approved") as refused:
        account.rent(offer, RentOrder(), MARK, PUBLIC)
    assert "QuotaMenuBlade" in refused.value.what
    assert not refused.value.is_final  # another family, or region, has its own
    assert azure_of(world).groups == {}


def test_quotas_that_nobody_may_read_hide_no_offer(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbidden = (403, {"error": {"code": "AuthorizationFailed", "message": "usages/read"}})
    monkeypatch.setitem(FAULTS, "forbidden", (False, forbidden))
    world.simulation.quotas = {"cores": 0}
    place = f"GET /subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/locations"
    world.simulation.fault_on = {f"{place}/{REGION}": "forbidden"}
    assert len(offers_of([account_at(world)], RentOrder())[0]) == 3


# The lease


def test_azure_itself_stops_a_box_after_its_lease(world: RentingWorld) -> None:
    box, _ = world.up(order=RentOrder(lease_hours=5, max_price=1.5))
    limit = 5 * 3600 + AFTER_LEASE_S
    began = world.ours[0].made
    ends = find_rented(box.host).ends
    assert ends is not None
    assert 0 <= ends - began - limit < 90  # in whole minutes, and never before
    assert ask_account(parse_host(box.host)).ends == ends
    world.simulation.clock.sleep(ends - world.simulation.clock.now - 1)
    assert seen(world, box.box_id).state is RentedState.RUNNING
    world.simulation.clock.sleep(2)
    stopped = seen(world, box.box_id)
    assert (stopped.state, stopped.ends, stopped.address) == (RentedState.STOPPED, None, "")
    assert stopped.stopped_price == pytest.approx(64 * 0.15 / 730 + 0.005, abs=1e-6)
    # A start is a new one: the time of the day at which it was stopped moves with it.
    world.simulation.clock.sleep(3600)
    account_at(world).start(box.box_id)
    world.simulation.clock.sleep(LOADING_S)
    again = seen(world, box.box_id)
    assert again.state is RentedState.RUNNING
    assert again.ends == pytest.approx(world.ours[0].since + limit, abs=61)


@pytest.mark.parametrize(
    ("order", "hold"),
    [
        (RentOrder(), LONGEST_HOLD_S),  # a day, which its schedule has no room for the half hour of
        (RentOrder(lease_hours=23.2), 23.2 * 3600 + AFTER_LEASE_S),
        (RentOrder(lease_hours=24), LONGEST_HOLD_S),
        (RentOrder(lease_hours=24.1), None),
        (RentOrder(lease_hours=100), None),
        (RentOrder(lease_dollars=0.526), 3600 + AFTER_LEASE_S),
        (RentOrder(lease_dollars=100), None),
        (RentOrder(lease_dollars=100, lease_hours=1), 3600 + AFTER_LEASE_S),
    ],
)
def test_a_schedule_names_a_time_of_the_day_and_so_holds_no_longer_lease(
    world: RentingWorld, order: RentOrder, hold: float | None
) -> None:
    now = world.simulation.clock.now
    box_id = rent(world, order)
    world.simulation.clock.sleep(LOADING_S)
    made = made_of(world, MARK)
    ends = seen(world, box_id).ends
    if hold is None:
        assert "schedules" not in made
        assert "boxstrap-stops-after" not in azure_of(world).groups[MARK]["tags"]
        assert ends is None
        account_at(world).stop(box_id)
        account_at(world).start(box_id)
        assert azure_of(world).schedules == {}
        return
    plan = made["schedules"]
    assert plan["name"] == "shutdown-computevm-box"  # no other name is looked for
    assert plan["properties"]["targetResourceId"].endswith("/virtualMachines/box")
    assert (plan["properties"]["status"], plan["properties"]["timeZoneId"]) == ("Enabled", "UTC")
    assert ends == pytest.approx(now + hold, abs=65)
    assert ends >= now + hold
    # It is over before that time comes again.
    assert ends - now < 86400


def test_a_start_whose_schedule_can_t_be_set_starts_nothing(world: RentingWorld) -> None:
    box, _ = world.up(order=RentOrder(lease_hours=5, max_price=1.5))
    account_at(world).stop(box.box_id)
    before = len(world.simulation.changed)
    world.simulation.fault_on = {CREATES["azure"]: "cut"}
    with pytest.raises(UnreachableError, match="was not started") as error:
        account_at(world).start(box.box_id)
    assert not isinstance(error.value, UndecidedError)
    assert not [x for x in world.simulation.changed[before:] if x.endswith("/start")]
    assert world.ours[0].state == "stopped"


def test_what_is_only_shut_down_is_paid_for_and_so_no_stopped_box(world: RentingWorld) -> None:
    box, _ = world.up()
    world.ours[0].state = "off"
    found = seen(world, box.box_id)
    assert (found.state, found.address) == (RentedState.RUNNING, "")
    assert "bills as if it ran" in found.said
    assert found.price_now() == 0.526
    account_at(world).stop(box.box_id)  # as a guard does
    assert seen(world, box.box_id).state is RentedState.STOPPED
    assert [x.partition("?")[0].rpartition("/")[2] for x in world.simulation.changed][-1] == (
        "deallocate"
    )


def test_a_start_without_room_is_said_and_the_box_stays(world: RentingWorld) -> None:
    box, _ = world.up()
    world.ours[0].state, world.ours[0].wakes = "stopped", "refused"
    with pytest.raises(UnreachableError, match=f"{NO_ROOM}: Allocation failed"):
        world.up()
    assert world.simulation.destroyed == []
    assert seen(world, box.box_id).state is RentedState.STOPPED


# What is ours


def test_only_a_group_with_our_tag_is_ours(world: RentingWorld) -> None:
    azure, account = azure_of(world), account_at(world)
    assert account.boxes() == []  # 71 and 72 are a company's
    box_id = rent(world)
    for name, tags in {
        "boxstrap-000000000001": {},
        "boxstrap-000000000002": {"boxstrap": MARK},
        "boxstrap-000000000003": {"Boxstrap": "boxstrap-000000000003"},
        "boxstrap-production": {"boxstrap": "boxstrap-production"},
        "boxstrap-0123456789ab0": {"boxstrap": "boxstrap-0123456789ab0"},
    }.items():
        azure.groups[name] = {"location": REGION, "tags": tags}
        theirs = azure_id(name)
        world.simulation.boxes.append(SimulatedBox(theirs, label=name, order={"tags": tags}))
        assert account.box(theirs) is None
        account.destroy(theirs)
        assert account.find_mark(name) == []
    assert [box.id for box in account.boxes()] == [box_id]
    assert account.leftovers() == []
    assert world.simulation.destroyed == []
    for none in ("999", "x", MARK, f"{azure_id(MARK)}0", f"{MARK[9:]}_../../x"):
        assert account.box(none) is None
        account.destroy(none)
    assert [x for x in world.simulation.changed if x.startswith("DELETE")] == []
    account.destroy(box_id)
    assert world.simulation.destroyed == [box_id]


OTHER_MARK = "boxstrap-ba9876543210"


def test_a_region_that_is_down_hides_no_box_of_another(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, _ = world.up()
    world.simulation.boxes.append(SimulatedBox(azure_id(OTHER_MARK), label=OTHER_MARK))
    find = azure_api.AzureApi.find

    def away(api: azure_api.AzureApi, path: str, *rest: Any) -> Any:
        if f"/{OTHER_MARK}/" in path:
            raise UnreachableError("it doesn't answer")
        return find(api, path, *rest)

    monkeypatch.setattr(azure_api.AzureApi, "find", away)
    with pytest.raises(PartialListError, match=f"leaves out {OTHER_MARK} in") as part:
        account_at(world).boxes()
    assert [one.id for one in part.value.boxes] == [box.box_id]
    began = world.simulation.clock.now
    world.down(box)
    assert world.simulation.clock.now - began < 30
    assert world.simulation.destroyed == [box.box_id]


def test_groups_of_all_pages_are_listed(world: RentingWorld) -> None:
    marks = [f"boxstrap-00000000000{at}" for at in range(5)]
    world.simulation.boxes += [SimulatedBox(azure_id(mark), label=mark) for mark in marks]
    azure_of(world).page = 2
    assert [box.name for box in account_at(world).boxes()] == marks


def test_a_box_of_another_subscription_is_not_taken_for_gone(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    box_id = rent(world)
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", OTHER)
    # The same login has the first one, too.
    assert seen(world, box_id).id == box_id
    with pytest.raises(UnreachableError, match="is not found"):
        account_at(world).boxes()
    of_other = f"{MARK[9:]}_{azure_api.digest_of(OTHER)}"
    elsewhere = f"{MARK[9:]}_000000"
    for one, said in ((of_other, "is not found"), (elsewhere, "another subscription")):
        for ask in (account_at(world).box, account_at(world).destroy):
            with pytest.raises(UnreachableError, match=said):
                ask(one)
    assert world.simulation.destroyed == []
    account_at(world).destroy(box_id)
    assert world.simulation.destroyed == [box_id]
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", "1f2e3d4c-0000-4000-8000-000000000000")
    with pytest.raises(UsageError, match="has no subscription 1f2e"):
        account_at(world).boxes()


def test_a_box_is_gone_once_its_machine_is_and_not_before(world: RentingWorld) -> None:
    box, _ = world.up()
    azure = azure_of(world)
    azure.machine_s, azure.delete_s = 60.0, 400.0
    account = account_at(world)
    account.destroy(box.box_id)
    going = seen(world, box.box_id)
    assert (going.state, going.said) == (RentedState.UNKNOWN, "it is being deleted")
    assert not teardown.is_gone(account, box.box_id)
    account.destroy(box.box_id)  # is no error
    # What is being deleted makes no box: another request of that name is refused.
    offer = offers_of([account], RentOrder())[0][0]
    with pytest.raises(NoOfferError, match="deprovisioning"):
        account.rent(offer, RentOrder(), box.mark, PUBLIC)
    world.simulation.clock.sleep(61)
    assert teardown.is_gone(account, box.box_id)
    assert account.boxes() == account.find_mark(box.mark) == account.leftovers() == []
    world.simulation.clock.sleep(400)
    assert account.box(box.box_id) is None
    assert azure.groups == {}


def test_too_many_requests_are_made_again(world: RentingWorld) -> None:
    world.simulation.retry_after = "17"
    world.simulation.fault_on = {f"PUT {GROUPS}": "429", CREATES["azure"]: "429"}
    began = world.simulation.clock.now
    rent(world)
    assert world.simulation.clock.now - began >= 34
    assert world.simulation.rented == [azure_id(MARK)]
    world.simulation.fault_on = {STARTS["azure"]: "429"}
    account_at(world).stop(azure_id(MARK))
    assert world.simulation.boxes[-1].state == "stopped"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"may_not": "resourceGroups/write"}, "lacks this permission"),
        ({"may_not": "deployments/write"}, "lacks this permission"),
        ({"is_disabled": True}, "its credit is used up, or a balance is owed"),
    ],
)
def test_what_no_offer_can_change_is_the_last(
    world: RentingWorld, setting: dict[str, Any], said: str
) -> None:
    for name, value in setting.items():
        setattr(azure_of(world), name, value)
    with pytest.raises(NoOfferError, match=said) as refused:
        world.up()
    assert refused.value.is_final
    assert azure_of(world).groups == {}
    assert len(creates(world)) <= 1


def test_the_reason_is_found_in_whatever_wraps_it() -> None:
    inner = {"error": {"code": "ResourceDeploymentFailure", "message": "x", "details": []}}
    inner["error"]["details"] = [{"code": "SkuNotAvailable", "message": "none"}]  # type: ignore[assignment]
    as_text = {"code": "Conflict", "message": json.dumps(inner)}
    deep = {"code": "DeploymentFailed", "message": "y", "details": [as_text]}
    assert reason_of(deep) == ("SkuNotAvailable", "none")
    assert reason_of({"code": "Conflict", "message": "locked"}) == ("Conflict", "locked")
    assert reason_of({"code": "Conflict", "message": "{not json"}) == ("Conflict", "{not json")
    wrapped = {"code": "DeploymentFailed", "message": "y", "details": [{"code": "Conflict"}]}
    assert reason_of(wrapped) == ("DeploymentFailed", "y")
    for nothing in (None, [], {}, {"code": 1, "message": 2}, "x"):
        assert reason_of(nothing) == ("", "no reason given")
    circle: dict[str, Any] = {"code": "DeploymentFailed", "message": "y"}
    circle["details"] = [circle]
    assert reason_of(circle) == ("DeploymentFailed", "y")


# What is for rent


def test_prices_are_today_s_of_linux_and_of_every_page(world: RentingWorld) -> None:
    azure_of(world).page = 3
    prices = {x.id: x.price for x in offers_of([account_at(world)], RentOrder())[0]}
    assert prices == {f"{x.id}/{x.region}": x.price for x in azure_offers()}
    spot = {x.id: x.price for x in offers_of([account_at(world)], SPOT)[0]}
    assert spot == {name: pytest.approx(price * 0.4) for name, price in prices.items()}
    bids = {x.bid for x in offers_of([account_at(world)], SPOT)[0]}
    assert bids == set(spot.values())


def test_only_the_cheapest_regions_are_asked_and_any_that_is_named(world: RentingWorld) -> None:
    world.simulation.offers = [
        SimulatedOffer("Standard_NC4as_T4_v3", price=0.5 + at / 100, region=f"region{at}")
        for at in range(10)
    ]
    found = offers_of([account_at(world)], RentOrder())[0]
    assert [offer.region for offer in found] == [f"region{at}" for at in range(8)]
    before = len(world.simulation.asked)
    (only,) = offers_of([account_at(world)], RentOrder(region="region9"))[0]
    assert only.region == "region9"
    assert len(world.simulation.asked) == before + 3  # prices, sizes, quotas


def test_sizes_have_whole_gpus_and_an_image_is_one_of_azure_s(world: RentingWorld) -> None:
    sizes = ("NC48ads_A100_v4", "NC64as_T4_v3", "NV6ads_A10_v5", "ND96isr_H100_v5", "D4s_v5")
    world.simulation.offers = [
        SimulatedOffer(f"Standard_{size}", region=REGION, price=2.0) for size in sizes
    ]
    account, found = account_at(world), {}
    for count in (1, 2, 4, 8):
        for offer in offers_of([account], RentOrder(gpu_count=count))[0]:
            found[offer.id.partition("/")[0]] = (offer.gpu_count, offer.gpu, offer.memory_gib)
    assert found == {
        "Standard_NC48ads_A100_v4": (2, "A100 PCIe 80GB", 80),
        "Standard_NC64as_T4_v3": (4, "T4", 16),
        "Standard_ND96isr_H100_v5": (8, "H100", 80),
    }
    world.simulation.asked.clear()
    assert account.catalog(RentOrder(gpu_names=("RTX 4090",))) == []
    assert account.catalog(RentOrder(volume="data")) == []
    assert world.simulation.asked == []
    for image in ("pytorch/pytorch", "a:b:c", "/subscriptions/../../x y"):
        with pytest.raises(UsageError, match="no image of Azure"):
            offers_of([account], RentOrder(image=image))
    world.simulation.offers = azure_offers()
    images = {
        "Canonical:ubuntu-24_04-lts:server:latest": "publisher",
        f"/subscriptions/{OTHER}/resourceGroups/x/providers/Microsoft.Compute/images/y": "id",
        "/CommunityGalleries/x/Images/y/Versions/latest": "communityGalleryImageId",
    }
    for at, (image, key) in enumerate(images.items()):
        rent(world, RentOrder(image=image), f"boxstrap-00000000000{at}")
        made = made_of(world, f"boxstrap-00000000000{at}")["virtualMachines"]
        assert key in made["properties"]["storageProfile"]["imageReference"]


# The login


def calls(world: RentingWorld) -> list[str]:
    return (config_folder(world.simulation.url) / "bin/calls").read_text().splitlines()


def test_az_is_asked_once_for_a_token_and_again_before_it_ends(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = time.time()
    for _ in range(3):
        account_at(world).boxes()
    asked = "account get-access-token --subscription {} --output json --only-show-errors"
    assert calls(world) == [asked.format(SUBSCRIPTION)]
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: before + 3600 - 301)
    account_at(world).boxes()
    assert len(calls(world)) == 1
    monkeypatch.setattr(time, "time", lambda: now + 3600 - 299)
    account_at(world).boxes()
    assert len(calls(world)) == 2
    # One that is refused is not used again.
    monkeypatch.setattr(time, "time", lambda: now)
    before = len(calls(world))
    world.simulation.faults = [(401, {"error": {"code": "ExpiredAuthenticationToken"}})]
    with pytest.raises(RefusedKeyError, match="refuses the key"):
        account_at(world).boxes()
    account_at(world).boxes()
    assert len(calls(world)) == before + 1


def test_the_az_of_these_tests_takes_only_what_az_takes(world: RentingWorld) -> None:
    for words in ("account show", "group delete", "account get-access-token --subscripton x"):
        done = subprocess.run(["az", *words.split()], capture_output=True, check=False)
        assert done.returncode == 2, words
    words = f"account get-access-token --subscription {OTHER[:-1]}9 --output json"
    assert subprocess.run(["az", *words.split()], capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize(
    ("said", "error", "match"),
    [
        (
            "ERROR: AADSTS70043: expired. Trace ID: 1 Correlation ID: 2\nInteractive "
            "authentication is needed. Please run:\naz login --tenant T --scope S\n",
            RefusedKeyError,
            "the key of a test: AADSTS70043: expired.",
        ),
        (
            "ERROR: The command failed.\nTraceback (most recent call last):\n  x\nKeyError: 'y'\n",
            RefusedKeyError,
            "KeyError: 'y'",
        ),
        ("ERROR: HTTPSConnectionPool: Max retries exceeded\n", UnreachableError, "gets no token"),
        ("", RefusedKeyError, "no reason given"),
    ],
)
def test_an_az_that_gives_no_token_says_why(
    world: RentingWorld, said: str, error: type[Exception], match: str
) -> None:
    (config_folder(world.simulation.url) / "refused").write_text(said)
    with pytest.raises(error, match=match) as refused:
        account_at(world).boxes()
    assert isinstance(refused.value, RefusedKeyError) == (error is RefusedKeyError)
    if "--tenant" in said:
        assert refused.value.hint.startswith("Log in again: az login --tenant T --scope S. ")
    assert world.simulation.asked == []


@pytest.mark.parametrize(
    "token", ["", "[]", "{}", '{"accessToken": ""}', '{"accessToken": "a\\nb"}']
)
def test_what_is_no_token_is_sent_nowhere(world: RentingWorld, token: str) -> None:
    (config_folder(world.simulation.url) / "token.json").write_text(token)
    with pytest.raises(UnreachableError, match="is no token"):
        account_at(world).boxes()
    assert world.simulation.asked == []


def test_who_is_not_logged_in_has_no_account_there(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find_account("azure")
    file = config_folder(world.simulation.url) / "azureProfile.json"
    told = json.loads(file.read_text("utf-8-sig"))
    assert [one.id for one in azure_api.subscriptions()] == [SUBSCRIPTION, OTHER]
    rows = told["subscriptions"]
    for key, value in {
        "state": "Disabled",
        "environmentName": "AzureChinaCloud",
        "id": "../../x",
    }.items():
        changed = [{**row, key: value} for row in rows]
        file.write_text(json.dumps({"subscriptions": changed}))
        assert find_account("azure") is None
    for text in ("", "[]", '{"subscriptions": 3}', "\0"):
        file.write_text(text)
        assert find_account("azure") is None
    with pytest.raises(UsageError, match="no key of your account") as error:
        find_rented(f"azure:{azure_id(MARK)}")
    assert "az login" in error.value.hint
    monkeypatch.setenv("PATH", str(tmp_path))
    for ask in (
        lambda: find_rented(f"azure:{azure_id(MARK)}"),
        lambda: accounts_for("azure", read_profile("ssh")),
    ):
        with pytest.raises(UsageError, match="isn't installed") as error:
            ask()
        assert "install-azure-cli" in error.value.hint


def test_whoever_rents_elsewhere_starts_no_az(user: User) -> None:
    asked = (
        "import sys; from bootstrap.providers.accounts import PROVIDERS, find_account;"
        "assert find_account('azure'); assert 'azure.core' not in sys.modules"
    )
    with simulated("azure") as account:
        env = {**user.env, **account.environment()}
        subprocess.run([sys.executable, "-c", asked], env=env, check=True)
        assert not (config_folder(account.url) / "bin/calls").exists()


def test_a_login_for_other_purposes_is_no_wish_to_rent_there(
    world: RentingWorld, user: User
) -> None:
    user.env |= world.simulation.environment()
    user.repository(**{"train.py": "print(1)\n", "boxstrap.yaml": "version: 1\n"})
    assert "no key of an account was found" in user.run("up", "--max-price", "1").must(2).err
    assert world.simulation.asked == []
    named = user.run("up", "--provider", "azure", "--dry-run", "--max-price", "1").must(0)
    assert "T4" in named.out
