"""What Google Cloud does otherwise than other providers: operations, quotas, zones, projects."""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from bootstrap.errors import NoOfferError, UnreachableError, UsageError
from bootstrap.link import ask_account, parse_host
from bootstrap.providers import (
    AFTER_LEASE_S,
    PROVIDERS,
    PartialListError,
    RefusedKeyError,
    RentedState,
    RentOrder,
    UndecidedError,
    digest_of,
    find_account,
    find_rented,
    google_api,
)
from bootstrap.providers.google_cloud import MARKER, RULE, GoogleCloud, network_tag
from bootstrap.renting import offers_of, rental
from tests.providers.accounts import KEY, LOADING_S, SimulatedBox, SimulatedOffer
from tests.providers.google_account import PROJECT, RATE_LIMIT, STOCK_OUT, ZONE, new_id
from tests.providers.google_account import _error as google_error
from tests.providers.renting_world import CREATES, MARK, PUBLIC, RentingWorld

PROVIDER, IS_LISTED = "gcp", False
OTHER = "boxstrap-ba9876543210"
SPOT = RentOrder(spot=True, max_price=1.5)


def test_a_google_cloud_box_ends_by_itself_after_its_lease_and_has_no_project_key(
    world: RentingWorld,
) -> None:
    box_id = world.rent(RentOrder(disk_gb=80, lease_hours=10))
    asked = world.simulation.one(box_id).order  # type: ignore[union-attr]
    assert (asked["name"], asked["labels"]) == (MARK, {"boxstrap": MARK})
    assert "serviceAccounts" not in asked
    assert asked["scheduling"] == {
        **{"provisioningModel": "STANDARD", "onHostMaintenance": "TERMINATE"},
        **{"automaticRestart": False, "instanceTerminationAction": "DELETE"},
        "maxRunDuration": {"seconds": str(10 * 3600 + AFTER_LEASE_S)},
    }
    (disk,) = asked["disks"]
    assert (disk["boot"], disk["autoDelete"]) == (True, True)
    assert disk["initializeParams"]["diskSizeGb"] == "80"
    assert disk["initializeParams"]["labels"] == {"boxstrap": MARK}
    told = {each["key"]: each["value"] for each in asked["metadata"]["items"]}
    assert told["ssh-keys"] == f"ubuntu:{PUBLIC}"
    assert (told["block-project-ssh-keys"], told["enable-oslogin"]) == ("TRUE", "FALSE")
    assert f"echo 'gcp stop 0.706832' >{MARKER}" in told["startup-script"]
    assert KEY not in json.dumps(asked)
    seen = world.seen(box_id)
    assert (seen.state, seen.name, seen.is_spot) == (RentedState.STARTING, MARK, False)
    assert (seen.price, seen.ends) == (0.706832, None)


def test_only_boxstraps_disk_of_a_failed_google_cloud_rental_is_deleted(
    world: RentingWorld,
) -> None:
    google = world.simulation.own
    world.simulation.offers[0].fate = "none left"
    account, offer = world.account, world.offers()[0]
    # Nobody else's of that name is.
    for labels, is_gone in (({"boxstrap": MARK}, True), ({"boxstrap": OTHER}, False), ({}, False)):
        google.requests.clear()
        google.disks = {MARK: {"id": "5", "name": MARK, "sizeGb": "50", "labels": labels}}
        with pytest.raises(NoOfferError, match=STOCK_OUT):
            account.rent(offer, RentOrder(), MARK, PUBLIC)
        assert (MARK not in google.disks) == is_gone
    world.simulation.boxes.append(SimulatedBox("74", label=MARK, order={"labels": {}}))
    google.requests.clear()
    with pytest.raises(UndecidedError, match="already exists"):
        account.rent(offer, RentOrder(), MARK, PUBLIC)
    account._delete_parts(f"/compute/v1/projects/{PROJECT}/zones/{ZONE}", MARK)
    assert world.simulation.one("74")


def test_google_cloud_spot_is_rented_in_its_cheapest_zone(world: RentingWorld) -> None:
    world.simulation.offers = [
        SimulatedOffer("g2-standard-4", price=0.423956, region="us-central1-a"),
        SimulatedOffer("g2-standard-4", price=0.34166, region="us-east4-a"),
        SimulatedOffer("a3-highgpu-1g", price=6.6, region="us-central1-a"),
    ]
    assert len(world.offers()) == 2  # a part of 8 H100 is only spot
    assert len(world.offers(RentOrder(spot=True))) == 3
    box, _ = world.up(order=SPOT)
    assert (box.machine, box.spot) == ("g2-standard-4/us-east4-a", True)
    scheduling = world.ours[0].order["scheduling"]
    assert scheduling["provisioningModel"] == "SPOT"
    assert scheduling["automaticRestart"] is False
    seen = world.seen(box.box_id)
    assert (seen.is_spot, seen.price) == (True, 0.34166)
    world.simulation.boxes.remove(world.ours[0])  # Google takes it back
    assert world.account.box(box.box_id) is None


def test_a_restarted_google_cloud_box_ends_by_itself_one_full_lease_after_its_restart(
    world: RentingWorld,
) -> None:
    box, _ = world.up(order=RentOrder(lease_hours=5, max_price=1.5))
    limit = 5 * 3600 + AFTER_LEASE_S
    rented = find_rented(box.host)
    assert rented.ends == pytest.approx(world.ours[0].since + limit)
    assert ask_account(parse_host(box.host)).ends == rented.ends
    account = world.account
    account.stop(box.box_id)
    stopped = world.seen(box.box_id)
    assert (stopped.state, stopped.ends) == (RentedState.STOPPED, None)
    assert stopped.stopped_price == pytest.approx(50 * 0.10 / 730, abs=1e-6)
    world.simulation.clock.sleep(9999)
    account.start(box.box_id)
    world.simulation.clock.sleep(LOADING_S)
    assert find_rented(box.host).ends == pytest.approx(world.ours[0].since + limit)


def test_a_google_cloud_project_gets_one_ssh_firewall_rule_at_most(world: RentingWorld) -> None:
    google = world.simulation.own
    world.rent()
    world.rent(mark=OTHER)
    (rule,) = google.firewalls
    assert (rule["name"], rule["targetTags"]) == (RULE, ["boxstrap"])
    assert rule["allowed"] == [{"IPProtocol": "tcp", "ports": ["22"]}]
    anywhere: dict[str, Any] = {"name": "x", "network": rule["network"], "direction": "INGRESS"}
    anywhere |= {"sourceRanges": ["0.0.0.0/0"], "allowed": [{"IPProtocol": "tcp"}]}
    enough = [anywhere, {**anywhere, "allowed": [{"IPProtocol": "tcp", "ports": ["20-30"]}]}]
    for at, own in enumerate(enough):
        google.firewalls = [own]
        world.rent(mark=f"boxstrap-00000000000{at}")
        assert google.firewalls == [own]
    less: list[dict[str, Any]] = [
        *({"sourceRanges": ["10.0.0.0/8"]}, {"disabled": True}, {"direction": "EGRESS"}),
        *({"targetTags": ["web"]}, {"allowed": [{"IPProtocol": "tcp", "ports": ["443"]}]}),
        {"network": rule["network"].replace("default", "other")},
        {"targetServiceAccounts": ["x@y.iam.gserviceaccount.com"]},
    ]
    for at, change in enumerate(less):
        google.firewalls = [{**anywhere, **change}]
        world.rent(mark=f"boxstrap-10000000000{at}")
        assert [each["name"] for each in google.firewalls] == ["x", RULE], change


def test_google_cloud_boxes_of_one_network_reach_only_each_other(world: RentingWorld) -> None:
    google = world.simulation.own
    order = RentOrder(network="My_cluster.2")
    for mark in (MARK, OTHER):
        world.rent(order, mark=mark)
    world.rent(mark="boxstrap-23456789abcd")
    own = "boxstrap-my-cluster-2"
    _, rule = google.firewalls  # SSH, and among themselves: once
    assert (rule["name"], rule["allowed"]) == (own, [{"IPProtocol": "all"}])
    assert (rule["sourceTags"], rule["targetTags"]) == ([own], [own])
    assert "sourceRanges" not in rule
    tags = [box.order["tags"]["items"] for box in world.simulation.boxes if box.order]
    assert tags == [["boxstrap", own], ["boxstrap", own], ["boxstrap"]]
    assert network_tag("x" * 100) == f"boxstrap-{'x' * 54}"


def test_google_cloud_nodes_are_not_rented_without_a_firewall_rule_between_nodes(
    world: RentingWorld,
) -> None:
    world.rent()
    world.simulation.own.may_not = "firewalls.create"
    with pytest.raises(NoOfferError, match="among themselves") as refused:
        world.rent(RentOrder(network="nodes"), mark=OTHER)
    assert refused.value.is_final
    tag = "boxstrap-nodes"
    assert f"--allow all --source-tags {tag} --target-tags {tag}" in refused.value.hint
    assert len(world.creates) == 1


def test_google_cloud_rents_nothing_without_a_firewall_rule_for_ssh(world: RentingWorld) -> None:
    world.simulation.own.may_not = "firewalls.create"
    with pytest.raises(NoOfferError, match=r"firewalls\.create") as refused:
        world.up()
    assert refused.value.is_final
    assert "gcloud compute firewall-rules create boxstrap-ssh" in refused.value.hint
    world.simulation.own.may_not = ""
    place = f"/compute/v1/projects/{PROJECT}/global/firewalls"
    world.simulation.fault_on = {f"POST {place}": "cut"}
    with pytest.raises(UnreachableError, match="Nothing was rented") as error:
        world.up()
    assert not isinstance(error.value, UndecidedError)
    assert rental.all_rentals() == []
    assert world.creates == []


def test_a_google_cloud_box_of_another_project_is_not_reported_as_gone(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    box_id = world.rent()
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "another-project")
    # The key's own file still names the first one.
    seen = world.account._box(box_id)
    assert seen
    assert seen.id == box_id
    elsewhere = box_id[:-6] + "0" * 6
    for ask in (world.account.box, world.account.destroy):
        with pytest.raises(UnreachableError, match="another project"):
            ask(elsewhere)
    # One that is not found itself says nothing of what is in it.
    with pytest.raises(UnreachableError, match="another-project' was not found"):
        world.account.boxes()
    with pytest.raises(UnreachableError, match="another-project' was not found"):
        world.account.destroy(f"9001_{ZONE}_{digest_of('another-project')}")
    assert world.simulation.destroyed == []
    world.account.destroy(box_id)
    assert world.simulation.destroyed == [box_id]


def test_the_google_cloud_project_comes_from_the_environment_else_from_gclouds_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    assert google_api.projects() == []
    api = google_api.GoogleApi("gcp", "https://127.0.0.1", "a test")
    with pytest.raises(UsageError, match="which of your projects") as error:
        api.path()
    assert "gcloud config set project" in error.value.hint
    (tmp_path / "configurations").mkdir()
    for name, text in {
        "default": "[core]\nproject = first-project\n",
        "work": "[core]\nproject = work-project\n",
        "broken": "project = none\n",
        "empty": "[compute]\nregion = x\n",
    }.items():
        (tmp_path / f"configurations/config_{name}").write_text(text)
    own = tmp_path / "application_default_credentials.json"
    own.write_text('{"type": "authorized_user", "quota_project_id": "quota-project"}')
    assert google_api.projects() == ["first-project", "work-project", "quota-project"]
    (tmp_path / "active_config").write_text("work")
    assert google_api.projects()[0] == "work-project"
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "named-project")
    assert google_api.projects()[0] == "named-project"
    for named in ("example.com:research", "123456789012"):
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", named)
        assert google_api.GoogleApi("gcp", "https://127.0.0.1", "a test").project == named
    # Another one would pay for it.
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "../../etc")
    with pytest.raises(UsageError, match="etc' is no project") as error:
        assert google_api.GoogleApi("gcp", "https://127.0.0.1", "a test").project
    assert "GOOGLE_CLOUD_PROJECT" in error.value.hint


def test_only_google_cloud_boxes_with_the_boxstrap_label_are_listed(world: RentingWorld) -> None:
    account, simulation = world.account, world.simulation
    assert account.boxes() == []  # 71 and 72 are a company's
    theirs = world.seen("71")
    assert (theirs.id, theirs.price) == ("71", None)
    for none in ("999", "x", "71_us-east4-a_000000x"):
        assert account.box(none) is None
    box_id = world.rent()
    simulation.boxes.append(SimulatedBox(new_id(73), label=OTHER, state="stopped"))
    assert {box.id for box in account.boxes()} == {box_id, new_id(73)}
    assert account.find_mark(f"{OTHER}0") == []


def test_with_a_google_cloud_zone_down_the_list_says_so_and_boxes_in_other_zones_can_be_destroyed(
    world: RentingWorld,
) -> None:
    box, _ = world.up()
    world.simulation.own.is_down = "zones/us-east4-a"
    with pytest.raises(PartialListError, match="leaves out zones/us-east4-a") as part:
        world.account.boxes()
    assert [one.id for one in part.value.boxes] == [box.box_id]
    with pytest.raises(UnreachableError, match="leaves out zones/us-east4-a"):
        world.account.find_mark(MARK)  # it may be there
    assert world.offers()
    began = world.simulation.clock.now
    world.down(box)
    assert world.simulation.clock.now - began < 30
    assert world.simulation.destroyed == [box.box_id]


def test_a_google_cloud_disk_left_behind_is_listed_with_its_price(world: RentingWorld) -> None:
    box, _ = world.up()
    account = world.account
    assert account.leftovers() == []
    world.simulation.own.disks[box.mark]["users"] = []
    (left,) = account.leftovers()
    assert (left.kind, left.size_gb) == ("disk", 50)
    assert left.price == pytest.approx(50 * 0.10 / 730)
    assert box.mark in left.name
    world.simulation.log = "one\ntwo\n"
    assert account.log(box.box_id) == ["one", "two"]


def test_google_cloud_offers_only_whole_gpus_with_a_known_price(world: RentingWorld) -> None:
    kinds = ("g2-standard-48", "g4-standard-48", "g4-standard-24", "a2-highgpu-2g", "n1-standard-4")
    world.simulation.offers = [
        *(SimulatedOffer(kind, region=ZONE) for kind in (*kinds, "a2-ultragpu-1g")),
        SimulatedOffer("g2-standard-4", region="africa-south1-a"),
    ]
    account, found = world.account, {}
    for count in (1, 2, 4):
        for offer in world.offers(RentOrder(gpu_count=count)):
            found[offer.id.partition("/")[0]] = (offer.gpu_count, offer.gpu, offer.price)
    assert found == {
        "g2-standard-48": (4, "L4", 4.001664),
        "g4-standard-48": (1, "RTX PRO 6000", 4.49993),
        "a2-highgpu-2g": (2, "A100 40GB", 7.34677),
        "a2-ultragpu-1g": (1, "A100 80GB", 5.068798),
    }
    a100 = offers_of([account], RentOrder(gpu_names=("A100 80GB",)))[0]
    assert [offer.gpu for offer in a100] == ["A100 80GB"]
    assert world.offers(RentOrder(region="europe-west4")) == []
    with pytest.raises(UsageError, match="no image of Google Cloud"):
        offers_of([account], RentOrder(image="pytorch/pytorch"))
    own = "projects/my-images/global/images/family/torch"
    assert world.offers(RentOrder(image=own, min_cuda="13.1"))
    assert world.offers(RentOrder(min_cuda="13.1")) == []


@pytest.mark.parametrize(
    ("exact", "said", "advice"),
    [
        ("SERVICE_DISABLED", "has not been used", "gcloud services enable compute.googleapis.com"),
        ("BILLING_DISABLED", "requires billing", "Your project has no billing account"),
        ("IAM_PERMISSION_DENIED", "Required 'compute.x'", "lack this permission"),
        ("", "Required 'compute.x' permission", "lack this permission"),
        ("USER_PROJECT_DENIED", "may not use project", "What your credentials must be allowed"),
    ],
)
def test_a_google_cloud_403_is_reported_with_googles_words_and_without_advice_to_log_in_again(
    world: RentingWorld, exact: str, said: str, advice: str
) -> None:
    told = google_error(403, "forbidden", said, exact)
    for ask in ("aggregated/machineTypes", "aggregated/instances"):
        world.simulation.fault_on = {f"GET /compute/v1/projects/{PROJECT}/{ask}": told}
        with pytest.raises(RefusedKeyError, match=f"it refuses: {said}") as refused:
            world.account.boxes() if "inst" in ask else world.account.catalog(RentOrder())
        assert advice in refused.value.hint
        assert "Log in again" not in refused.value.hint


@pytest.mark.parametrize(
    ("constraint", "asked"), [("compute.vmExternalIpAccess", 1), ("gcp.resourceLocations", 4)]
)
@pytest.mark.parametrize("in_operation", [False, True])
def test_up_at_google_cloud_tries_another_zone_after_a_policy_refusal_only_if_that_is_about_zones(
    world: RentingWorld, constraint: str, asked: int, in_operation: bool
) -> None:
    google = world.simulation.own
    said = f"Constraint constraints/{constraint} violated for project {PROJECT}."
    own = google._insert

    def insert(zone: str, request: str, body: dict[str, Any]) -> Any:
        if not in_operation:
            return google_error(412, "conditionNotMet", said)
        world.simulation.offers[0].fate = "none left"
        status, made = own(zone, request, body)
        google._fails(made, "CONDITION_NOT_MET", said)
        return status, made

    google._insert = insert  # type: ignore[method-assign]
    with pytest.raises(NoOfferError, match="a policy of your organisation forbids it") as refused:
        world.up()
    assert refused.value.is_final
    assert "run the same command again" not in refused.value.hint
    assert len(world.creates) == asked


def test_google_cloud_requests_refused_as_too_many_are_tried_again(world: RentingWorld) -> None:
    world.simulation.fault_on = {CREATES["gcp"]: RATE_LIMIT}
    box, _ = world.up()
    assert world.simulation.rented == [box.box_id]
    assert len(world.creates) == 2
    world.simulation.faults_at = {len(world.simulation.asked): RATE_LIMIT}
    assert [one.id for one in world.account.boxes()] == [box.box_id]


def test_a_google_cloud_token_is_renewed_once_it_has_expired(world: RentingWorld) -> None:
    account = world.account
    account.boxes()
    google = account._google
    first = google._credentials
    first.expiry = datetime.now(timezone.utc).replace(tzinfo=None) - timedelta(hours=1)
    first.token = "over"
    assert account.boxes() == []
    assert first.token == KEY


@pytest.mark.parametrize("error", [TypeError, AttributeError, KeyError])
def test_a_malformed_answer_of_googles_token_server_is_reported_as_a_refused_login(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    account = world.account
    account.boxes()

    def refresh(_: object) -> None:
        raise error("expires_in")

    credentials = account._google._credentials
    credentials.token = None
    monkeypatch.setattr(credentials, "refresh", refresh)
    with pytest.raises(RefusedKeyError, match=error.__name__):
        account.boxes()


def test_malformed_google_credentials_are_refused_with_the_gcloud_login_command(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "key.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    assert find_account("gcp") is None
    for text in ("", "{}", '{"type": "service_account"}', "\0"):
        file.write_text(text)
        with pytest.raises(RefusedKeyError, match="refuses the key of GOOGLE") as error:
            PROVIDERS["gcp"](GoogleCloud.keys.find()).boxes()
        assert "gcloud auth application-default login" in error.value.hint
    assert world.simulation.asked == []
