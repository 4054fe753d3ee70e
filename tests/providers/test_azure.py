"""What Azure does otherwise than other providers: groups, deployments, deallocation, `az`."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import NoOfferError, UnreachableError, UsageError
from bootstrap.link import ask_account, parse_host
from bootstrap.onbox.lease.instance import HOLD
from bootstrap.profile.load import read_profile
from bootstrap.providers import (
    AFTER_LEASE_S,
    PartialListError,
    RefusedKeyError,
    RentedState,
    RentOrder,
    UndecidedError,
    azure_api,
    find_account,
    find_rented,
)
from bootstrap.providers.azure import LONGEST_HOLD_S
from bootstrap.providers.azure_api import AzureApi, reason_of
from bootstrap.renting import accounts_for, offers_of, rental
from tests.providers.accounts import KEY, LOADING_S, SimulatedBox, SimulatedOffer
from tests.providers.azure_account import (
    NO_ROOM,
    OTHER,
    REGION,
    SUBSCRIPTION,
    azure_id,
    config_folder,
)
from tests.providers.renting_world import CREATES, MARK, PUBLIC, RentingWorld, offers_at

PROVIDER, IS_LISTED = "azure", False
ANOTHER = "boxstrap-ba9876543210"
SPOT = RentOrder(spot=True, max_price=1.5)
GROUPS = f"/subscriptions/{SUBSCRIPTION}/resourcegroups/"


@pytest.fixture(autouse=True)
def _by_azures_time(world: RentingWorld) -> None:
    AzureApi._tokens.clear()
    world.simulation.tells_time = True


def made_of(world: RentingWorld, mark: str) -> dict[str, Any]:
    """What a template asked for, by the last word of its type."""
    template = world.simulation.own.deployments[mark]["template"]
    return {each["type"].rpartition("/")[2]: each for each in template["resources"]}


def test_an_azure_box_has_a_resource_group_of_its_own_and_no_identity_or_rights(
    world: RentingWorld,
) -> None:
    box_id = world.rent(RentOrder(disk_gb=80, lease_hours=10))
    assert box_id == azure_id(MARK)
    group = world.simulation.own.groups[MARK]
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
    box = world.seen(box_id)
    assert (box.state, box.name, box.is_spot) == (RentedState.STARTING, MARK, False)
    assert (box.price, box.user, box.address) == (0.526, "azureuser", "")
    world.simulation.clock.sleep(LOADING_S)
    assert world.seen(box_id).address == "127.0.0.1"
    assert "azure" not in HOLD  # which would end by its shutdown, and be paid for


def test_an_azure_disk_is_at_least_as_large_as_its_image(world: RentingWorld) -> None:
    world.rent(RentOrder(disk_gb=20))
    disk = made_of(world, MARK)["virtualMachines"]["properties"]["storageProfile"]["osDisk"]
    assert disk["diskSizeGB"] == 64


def test_an_azure_rental_requested_again_after_a_lost_answer_gives_one_box_or_why_it_failed(
    world: RentingWorld,
) -> None:
    account, own = world.account, world.simulation.own
    own.deployment_s = 9.0
    world.simulation.offers[1].fate = "none left"
    first, second, *_ = world.offers()
    for offer, mark in ((first, MARK), (second, ANOTHER)):
        world.simulation.fault_on = {CREATES["azure"]: "cut after"}
        with pytest.raises(UndecidedError):
            account.rent(offer, RentOrder(), mark, PUBLIC)
    assert account.rent(first, RentOrder(), MARK, PUBLIC) == azure_id(MARK)
    with pytest.raises(NoOfferError, match=NO_ROOM):
        account.rent(second, RentOrder(), ANOTHER, PUBLIC)
    assert (world.simulation.rented, [*own.groups]) == ([azure_id(MARK)], [MARK])


def test_up_at_azure_rents_nothing_until_a_half_made_box_of_an_earlier_up_is_deleted(
    world: RentingWorld,
) -> None:
    world.simulation.offers[0].fate = "failed bid"
    world.simulation.own.is_locked = True
    account, offer = world.account, world.offers()[0]
    with pytest.raises(UndecidedError, match="perhaps left parts of one: it refuses"):
        account.rent(offer, RentOrder(), MARK, PUBLIC)
    (half,) = account.find_mark(MARK)
    assert half.state is RentedState.BROKEN
    assert NO_ROOM in half.said
    with pytest.raises(UnreachableError, match="a lock"):
        world.up()
    assert [each.state.value for each in rental.all_rentals()] == ["leaving"]
    world.simulation.own.is_locked = False
    box, _ = world.up()
    assert {one.id for one in world.ours} == {box.box_id, azure_id(MARK)}
    # A machine that goes on being deleted counts against the quota: it is waited for.
    world.simulation.own.machine_s = 9999.0
    world.simulation.offers[1].fate = "failed bid"
    second = next(x for x in world.offers() if "NC8as" in x.id)
    with pytest.raises(UndecidedError, match="still being deleted"):
        account.rent(second, RentOrder(), ANOTHER, PUBLIC)


def test_an_empty_azure_resource_group_of_a_killed_rental_is_deleted(world: RentingWorld) -> None:
    """As of a command that was killed between its two requests."""
    world.simulation.fault_on = {CREATES["azure"]: "cut"}
    box, _ = world.up()
    assert len(world.creates) == 2
    assert [*world.simulation.own.groups] == [box.mark]
    ended = [each for each in rental.all_rentals() if each.state.value == "ended"]
    assert [each.mark for each in ended] != [box.mark]
    world.simulation.own.groups[MARK] = {"location": REGION, "tags": {"boxstrap": MARK}}
    (half,) = world.account.find_mark(MARK)
    assert half.state is RentedState.BROKEN
    assert half.said == "nothing was made in its resource group"
    assert {one.id for one in world.account.boxes()} == {box.box_id, azure_id(MARK)}


def test_an_azure_rental_refused_at_login_leaves_no_resource_group(world: RentingWorld) -> None:
    account, offer = world.account, world.offers()[0]
    world.simulation.fault_on = {CREATES["azure"]: (401, {"error": {"code": "x", "message": "no"}})}
    with pytest.raises(RefusedKeyError):
        account.rent(offer, RentOrder(), MARK, PUBLIC)
    assert world.simulation.own.groups == {}


def test_an_azure_spot_box_is_ordered_with_max_price_as_its_bid_and_eviction_policy_delete(
    world: RentingWorld,
) -> None:
    box, _ = world.up(order=SPOT)
    assert (box.spot, box.price) == (True, pytest.approx(0.526 * 0.4))
    vm = made_of(world, box.mark)["virtualMachines"]["properties"]
    assert (vm["priority"], vm["evictionPolicy"]) == ("Spot", "Delete")
    assert vm["billingProfile"] == {"maxPrice": 1.5}
    assert world.seen(box.box_id).is_spot is True
    world.simulation.boxes.remove(world.ours[0])
    account = world.account
    assert account.box(box.box_id).state is RentedState.GONE  # type: ignore[union-attr]
    assert account.boxes() == []
    assert account.find_mark(box.mark) == []
    # Its group stays, and says so.
    (left,) = account.leftovers()
    assert (left.kind, left.name) == ("resource group", box.mark)
    world.rent(RentOrder(spot=True), ANOTHER)
    vm = made_of(world, ANOTHER)["virtualMachines"]["properties"]
    assert vm["billingProfile"] == {"maxPrice": -1}


def test_an_azure_size_that_the_subscription_may_not_have_is_no_offer(world: RentingWorld) -> None:
    world.simulation.own.restricted = {"Standard_NC4as_T4_v3"}
    fitting, others = offers_of([world.account], RentOrder())
    assert {offer.id.partition("/")[0] for offer in fitting} == {
        *("Standard_NC8as_T4_v3", "Standard_NC16as_T4_v3")
    }
    assert all("your subscription may not have" in offer.lacks for offer in others)


# The lease


def test_azure_itself_stops_a_box_half_an_hour_after_its_lease(world: RentingWorld) -> None:
    box, _ = world.up(order=RentOrder(lease_hours=5, max_price=1.5))
    limit = 5 * 3600 + AFTER_LEASE_S
    began = world.ours[0].made
    ends = find_rented(box.host).ends
    assert ends is not None
    assert 0 <= ends - began - limit < 90  # in whole minutes, and never before
    assert ask_account(parse_host(box.host)).ends == ends
    world.simulation.clock.sleep(ends - world.simulation.clock.now - 1)
    assert world.seen(box.box_id).state is RentedState.RUNNING
    world.simulation.clock.sleep(2)
    stopped = world.seen(box.box_id)
    assert (stopped.state, stopped.ends, stopped.address) == (RentedState.STOPPED, None, "")
    assert stopped.stopped_price == pytest.approx(64 * 0.15 / 730 + 0.005, abs=1e-6)
    # A start is a new one: the time of the day at which it was stopped moves with it.
    world.simulation.clock.sleep(3600)
    world.account.start(box.box_id)
    world.simulation.clock.sleep(LOADING_S)
    again = world.seen(box.box_id)
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
def test_an_azure_box_gets_a_shutdown_schedule_only_if_its_lease_ends_within_a_day(
    world: RentingWorld, order: RentOrder, hold: float | None
) -> None:
    now = world.simulation.clock.now
    box_id = world.rent(order)
    world.simulation.clock.sleep(LOADING_S)
    made = made_of(world, MARK)
    ends = world.seen(box_id).ends
    if hold is None:
        assert "schedules" not in made
        assert "boxstrap-stops-after" not in world.simulation.own.groups[MARK]["tags"]
        assert ends is None
        world.account.stop(box_id)
        world.account.start(box_id)
        assert world.simulation.own.schedules == {}
        return
    plan = made["schedules"]
    assert plan["name"] == "shutdown-computevm-box"  # no other name is looked for
    assert plan["properties"]["targetResourceId"].endswith("/virtualMachines/box")
    assert (plan["properties"]["status"], plan["properties"]["timeZoneId"]) == ("Enabled", "UTC")
    assert ends == pytest.approx(now + hold, abs=65)
    assert ends >= now + hold
    # It is over before that time comes again.
    assert ends - now < 86400


def test_an_azure_box_is_not_started_without_its_shutdown_schedule(world: RentingWorld) -> None:
    box, _ = world.up(order=RentOrder(lease_hours=5, max_price=1.5))
    world.account.stop(box.box_id)
    before = len(world.simulation.changed)
    world.simulation.fault_on = {CREATES["azure"]: "cut"}
    with pytest.raises(UnreachableError, match="was not started") as error:
        world.account.start(box.box_id)
    assert not isinstance(error.value, UndecidedError)
    assert not [x for x in world.simulation.changed[before:] if x.endswith("/start")]
    assert world.ours[0].state == "stopped"


def test_an_azure_box_shut_down_from_inside_is_listed_as_still_billed(world: RentingWorld) -> None:
    box, _ = world.up()
    world.ours[0].state = "off"
    found = world.seen(box.box_id)
    assert (found.state, found.address) == (RentedState.RUNNING, "")
    assert "bills as if it ran" in found.said
    assert found.price_now() == 0.526
    world.account.stop(box.box_id)  # as a guard does
    assert world.seen(box.box_id).state is RentedState.STOPPED
    assert [x.partition("?")[0].rpartition("/")[2] for x in world.simulation.changed][-1] == (
        "deallocate"
    )


# What is ours


def test_only_azure_groups_with_the_boxstrap_tag_are_listed_or_deleted(world: RentingWorld) -> None:
    azure, account = world.simulation.own, world.account
    assert account.boxes() == []  # 71 and 72 are a company's
    box_id = world.rent()
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


def test_boxes_of_other_azure_regions_are_listed_when_one_is_down(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, _ = world.up()
    world.simulation.boxes.append(SimulatedBox(azure_id(ANOTHER), label=ANOTHER))
    find = azure_api.AzureApi.find

    def away(api: azure_api.AzureApi, path: str, *rest: Any) -> Any:
        if f"/{ANOTHER}/" in path:
            raise UnreachableError("it doesn't answer")
        return find(api, path, *rest)

    monkeypatch.setattr(azure_api.AzureApi, "find", away)
    with pytest.raises(PartialListError, match=f"leaves out {ANOTHER} in") as part:
        world.account.boxes()
    assert [one.id for one in part.value.boxes] == [box.box_id]
    began = world.simulation.clock.now
    world.down(box)
    assert world.simulation.clock.now - began < 30
    assert world.simulation.destroyed == [box.box_id]


def test_all_pages_of_the_list_of_azure_boxes_are_read(world: RentingWorld) -> None:
    marks = [f"boxstrap-00000000000{at}" for at in range(5)]
    world.simulation.boxes += [SimulatedBox(azure_id(mark), label=mark) for mark in marks]
    world.simulation.own.page = 2
    assert [box.name for box in world.account.boxes()] == marks


def test_an_azure_box_of_another_subscription_is_not_reported_as_gone(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    box_id = world.rent()
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", OTHER)
    # The same login has the first one, too.
    assert world.seen(box_id).id == box_id
    with pytest.raises(UnreachableError, match="is not found"):
        world.account.boxes()
    of_other = f"{MARK[9:]}_{azure_api.digest_of(OTHER)}"
    elsewhere = f"{MARK[9:]}_000000"
    for one, said in ((of_other, "is not found"), (elsewhere, "another subscription")):
        for ask in (world.account.box, world.account.destroy):
            with pytest.raises(UnreachableError, match=said):
                ask(one)
    assert world.simulation.destroyed == []
    world.account.destroy(box_id)
    assert world.simulation.destroyed == [box_id]
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", "1f2e3d4c-0000-4000-8000-000000000000")
    with pytest.raises(UsageError, match="has no subscription 1f2e"):
        world.account.boxes()


def test_an_azure_box_being_deleted_is_reported_as_gone_only_when_its_machine_is(
    world: RentingWorld,
) -> None:
    box, _ = world.up()
    azure = world.simulation.own
    azure.machine_s, azure.delete_s = 60.0, 400.0
    account = world.account
    account.destroy(box.box_id)
    going = world.seen(box.box_id)
    assert (going.state, going.said) == (RentedState.UNKNOWN, "it is being deleted")
    assert not account.is_gone(box.box_id)
    account.destroy(box.box_id)  # is no error
    # What is being deleted makes no box: another request of that name is refused.
    offer = world.offers()[0]
    with pytest.raises(NoOfferError, match="deprovisioning"):
        account.rent(offer, RentOrder(), box.mark, PUBLIC)
    world.simulation.clock.sleep(61)
    assert account.is_gone(box.box_id)
    assert account.boxes() == account.find_mark(box.mark) == account.leftovers() == []
    world.simulation.clock.sleep(400)
    assert account.box(box.box_id) is None
    assert azure.groups == {}


def test_the_innermost_code_and_message_of_an_azure_refusal_are_reported_as_its_reason() -> None:
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


def test_azure_offers_have_the_linux_and_spot_prices_of_every_page(world: RentingWorld) -> None:
    world.simulation.own.page = 3
    prices = {x.id: x.price for x in world.offers()}
    assert prices == {f"{x.id}/{x.region}": x.price for x in offers_at("azure")}
    spot = {x.id: x.price for x in world.offers(SPOT)}
    assert spot == {name: pytest.approx(price * 0.4) for name, price in prices.items()}
    bids = {x.bid for x in world.offers(SPOT)}
    assert bids == set(spot.values())


def test_azure_offers_come_from_the_eight_cheapest_regions_unless_a_region_is_named(
    world: RentingWorld,
) -> None:
    world.simulation.offers = [
        SimulatedOffer("Standard_NC4as_T4_v3", price=0.5 + at / 100, region=f"region{at}")
        for at in range(10)
    ]
    found = world.offers()
    assert [offer.region for offer in found] == [f"region{at}" for at in range(8)]
    before = len(world.simulation.asked)
    (only,) = world.offers(RentOrder(region="region9"))
    assert only.region == "region9"
    assert len(world.simulation.asked) == before + 3  # prices, sizes, quotas


def test_azure_offers_list_only_sizes_with_whole_gpus_and_an_image_not_of_azure_is_wrong_usage(
    world: RentingWorld,
) -> None:
    sizes = ("NC48ads_A100_v4", "NC64as_T4_v3", "NV6ads_A10_v5", "ND96isr_H100_v5", "D4s_v5")
    world.simulation.offers = [
        SimulatedOffer(f"Standard_{size}", region=REGION, price=2.0) for size in sizes
    ]
    account, found = world.account, {}
    for count in (1, 2, 4, 8):
        for offer in world.offers(RentOrder(gpu_count=count)):
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
    world.simulation.offers = offers_at("azure")
    images = {
        "Canonical:ubuntu-24_04-lts:server:latest": "publisher",
        f"/subscriptions/{OTHER}/resourceGroups/x/providers/Microsoft.Compute/images/y": "id",
        "/CommunityGalleries/x/Images/y/Versions/latest": "communityGalleryImageId",
    }
    for at, (image, key) in enumerate(images.items()):
        world.rent(RentOrder(image=image), f"boxstrap-00000000000{at}")
        made = made_of(world, f"boxstrap-00000000000{at}")["virtualMachines"]
        assert key in made["properties"]["storageProfile"]["imageReference"]


# The login


def calls(world: RentingWorld) -> list[str]:
    return (config_folder(world.simulation.url) / "bin/calls").read_text().splitlines()


def test_an_azure_token_is_requested_from_az_once_and_renewed_shortly_before_it_expires(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = time.time()
    for _ in range(3):
        world.account.boxes()
    asked = "account get-access-token --subscription {} --output json --only-show-errors"
    assert calls(world) == [asked.format(SUBSCRIPTION)]
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: before + 3600 - 301)
    world.account.boxes()
    assert len(calls(world)) == 1
    monkeypatch.setattr(time, "time", lambda: now + 3600 - 299)
    world.account.boxes()
    assert len(calls(world)) == 2
    # One that is refused is not used again.
    monkeypatch.setattr(time, "time", lambda: now)
    before = len(calls(world))
    world.simulation.faults = [(401, {"error": {"code": "ExpiredAuthenticationToken"}})]
    with pytest.raises(RefusedKeyError, match="refuses the key"):
        world.account.boxes()
    world.account.boxes()
    assert len(calls(world)) == before + 1


def test_the_simulated_az_program_refuses_arguments_that_az_refuses(world: RentingWorld) -> None:
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
def test_an_az_program_that_gives_no_token_is_reported_with_its_reason(
    world: RentingWorld, said: str, error: type[Exception], match: str
) -> None:
    (config_folder(world.simulation.url) / "refused").write_text(said)
    with pytest.raises(error, match=match) as refused:
        world.account.boxes()
    assert isinstance(refused.value, RefusedKeyError) == (error is RefusedKeyError)
    if "--tenant" in said:
        assert refused.value.hint.startswith("Log in again: az login --tenant T --scope S. ")
    assert world.simulation.asked == []


@pytest.mark.parametrize(
    "token", ["", "[]", "{}", '{"accessToken": ""}', '{"accessToken": "a\\nb"}']
)
def test_a_malformed_token_from_az_is_not_sent_to_azure(world: RentingWorld, token: str) -> None:
    (config_folder(world.simulation.url) / "token.json").write_text(token)
    with pytest.raises(UnreachableError, match="is no token"):
        world.account.boxes()
    assert world.simulation.asked == []


def test_without_a_usable_az_login_an_azure_box_is_refused_with_a_hint_at_az_login(
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
