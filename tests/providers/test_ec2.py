"""What EC2 does otherwise than other providers: zones, quotas, spot, tokens, regions, groups."""

import base64
import dataclasses
import re
from typing import Any

import pytest
import yaml

from bootstrap.errors import NoOfferError, UnreachableError, UsageError
from bootstrap.providers import (
    PartialListError,
    RefusedKeyError,
    RentedState,
    RentOrder,
    UndecidedError,
    aws_api,
    find_rented,
)
from bootstrap.providers.ec2 import _OUR_RULE
from bootstrap.providers.ec2_market import quota_name
from bootstrap.renting import offers_of, rental
from bootstrap.runs.rented import ask_accounts
from tests.plain_environment import HERE
from tests.providers import ec2_account
from tests.providers.accounts import KEY, LOADING_S, SimulatedBox, SimulatedOffer, simulated
from tests.providers.ec2_account import error_text
from tests.providers.renting_world import MARK, PUBLIC, RentingWorld, offers_at

PROVIDER, IS_LISTED = "ec2", False
SPOT = RentOrder(spot=True, max_price=1.0)


def test_an_ec2_rental_launches_one_named_instance_without_a_role(world: RentingWorld) -> None:
    box_id = world.rent(RentOrder(disk_gb=80))
    asked = world.simulation.one(box_id).order  # type: ignore[union-attr]
    wanted = {
        **{"MinCount": "1", "MaxCount": "1", "ClientToken": MARK, "InstanceType": "g4dn.xlarge"},
        "InstanceInitiatedShutdownBehavior": "stop",
        "MetadataOptions.HttpTokens": "required",
        "BlockDeviceMapping.1.Ebs.VolumeSize": "80",
        "BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true",
        "NetworkInterface.1.AssociatePublicIpAddress": "true",
        "TagSpecification.1.ResourceType": "instance",
        "TagSpecification.2.ResourceType": "volume",
        **{f"TagSpecification.{n}.Tag.1.Value": MARK for n in (1, 2)},
    }
    assert wanted.items() <= asked.items()
    assert not [name for name in asked if "Iam" in name or "Market" in name]
    said = base64.b64decode(asked["UserData"]).decode()
    assert said.startswith("#cloud-config\n")
    assert f'"{PUBLIC}"' in said
    marker = base64.b64decode(said.partition("content: ")[2].partition("}")[0]).decode()
    assert marker == "ec2 stop 0.300000\n"
    assert "secret" not in said + marker
    seen = world.seen(box_id)
    assert (seen.state, seen.name, seen.is_spot) == (RentedState.STARTING, MARK, False)


def test_a_second_ec2_order_under_the_same_name_rents_no_second_box(world: RentingWorld) -> None:
    box_id = world.rent()
    with pytest.raises(UndecidedError, match="IdempotentParameterMismatch"):
        world.rent(at=1)
    assert world.simulation.rented == [box_id]


def test_ec2_offers_are_only_from_the_region_or_zone_that_the_profile_names(
    world: RentingWorld,
) -> None:
    account = world.account
    world.simulation.offers += offers_at("ec2", "us-east-1b")
    for region, count in {"us-east-1": 8, "us-east-1b": 4, "": 8}.items():
        assert len(world.offers(RentOrder(region=region))) == count
    with pytest.raises(UsageError, match="no image of EC2"):
        offers_of([account], RentOrder(image="pytorch/pytorch"))


def test_ec2_offers_only_whole_gpus_that_the_driver_supports(world: RentingWorld) -> None:
    kinds = {"g5.xlarge": 1, "g6f.xlarge": 1, "g4ad.xlarge": 1, "p3dn.24xlarge": 8}
    kinds |= {"p4d.24xlarge": 8, "g5g.xlarge": 1}
    world.simulation.offers = [
        SimulatedOffer(kind, price=0.5, region="us-east-1a") for kind in kinds
    ]
    found = dict[str, str]()
    for count in (1, 8):
        for arch in ("amd64", "arm64"):
            order = RentOrder(gpu_count=count, arch=arch)
            for offer in world.offers(order):
                found[offer.id.partition("/")[0]] = f"{offer.gpu_count} {offer.gpu} {offer.arch}"
    assert found == {
        **{"g5.xlarge": "1 A10G amd64", "p4d.24xlarge": "8 A100 amd64"},
        "g5g.xlarge": "1 T4g arm64",
    }


def test_ec2_spot_is_rented_in_the_cheapest_zone_and_not_stoppable(world: RentingWorld) -> None:
    world.simulation.offers = [
        SimulatedOffer("g5.xlarge", price=0.8, region="us-east-1a"),
        SimulatedOffer("g5.xlarge", price=0.6, region="us-east-1b"),
    ]
    box, _ = world.up(order=SPOT)
    assert (box.machine, box.spot) == ("g5.xlarge/us-east-1b", True)
    asked = world.ours[0].order
    wanted = {
        **{"InstanceMarketOptions.MarketType": "spot", "ClientToken": box.mark},
        "InstanceMarketOptions.SpotOptions.SpotInstanceType": "one-time",
        "InstanceMarketOptions.SpotOptions.MaxPrice": "1",
        "InstanceInitiatedShutdownBehavior": "terminate",
    }
    assert wanted.items() <= asked.items()
    account = world.account
    seen = world.seen(box.box_id)
    assert seen.is_spot
    assert account.stop_rule(is_spot=seen.is_spot) is None
    with pytest.raises(UnreachableError, match="UnsupportedOperation"):
        account.stop(box.box_id)
    assert rental.of_host(box.host) == box
    # AWS takes it back: terminated, and gone.
    world.simulation.boxes.remove(world.ours[0])
    gone = account._box(box.box_id)
    assert gone
    assert gone.state is RentedState.GONE
    assert account.find_mark(box.mark) == []


def test_up_takes_the_next_ec2_spot_offer_when_the_bid_fails(world: RentingWorld) -> None:
    world.simulation.offers[0].fate = "failed bid without contract"
    box, _ = world.up(order=SPOT)
    assert box.machine == "g5.xlarge/us-east-1a"


def test_up_does_not_wait_for_later_offers_if_ec2_refuses_all_because_of_a_quota(
    world: RentingWorld,
) -> None:
    world.simulation.quotas = {"g": 0}
    world.simulation.fault_on = {"POST /GetServiceQuota": "forbidden"}
    with pytest.raises(NoOfferError, match="VcpuLimitExceeded") as refused:
        world.up(wait_s=3600.0)
    assert "will be refused again" in refused.value.hint
    assert refused.value.is_final  # nor is it waited for


def test_an_ec2_box_rented_in_the_default_region_is_found_and_destroyed_after_aws_region_changed(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a box would seem gone to a user who works in another region since."""
    box_id = world.rent()
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    account = world.account
    seen = account._box(box_id)
    assert seen
    assert seen.id == box_id
    assert account.box(f"{box_id}_eu-west-1") is None
    assert [each.id for each in account.boxes()] == [box_id]
    account.destroy(f"{box_id}_eu-west-1")
    assert world.simulation.destroyed == []
    account.destroy(box_id)
    assert world.simulation.destroyed == [box_id]


def test_only_ec2_instances_with_the_boxstrap_tag_are_listed(world: RentingWorld) -> None:
    account, simulation = world.account, world.simulation
    assert account.boxes() == []  # 71 and 72 are a company's
    assert account.box("71")
    box_id = world.rent()
    simulation.boxes.append(SimulatedBox("73", label="boxstrap-ba9876543210", state="stopped"))
    listed = {box.id: box for box in account.boxes()}
    assert set(listed) == {box_id, "73"}
    assert listed["73"].stopped_price == pytest.approx(8 * 0.08 / 730, abs=1e-5)  # moto's disk


def test_the_ec2_security_group_lets_in_the_users_own_address_alone(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allowed() -> set[str]:
        rules = our_group(world).ingress_rules
        assert {(rule.from_port, rule.to_port) for rule in rules} == {(22, 22)}
        return {rule.ip_range["CidrIp"] for rule in rules}

    box_id = world.rent()
    asked = len(world.simulation.changed)
    world.simulation.clock.sleep(LOADING_S)
    assert not find_rented(f"ec2:{box_id}").let_in
    assert allowed() == {f"{ec2_account.OWN_ADDRESS}/32"}
    assert len(world.simulation.changed) == asked
    monkeypatch.setattr(ec2_account, "OWN_ADDRESS", "198.51.100.7")
    assert find_rented(f"ec2:{box_id}").let_in  # so a login that failed is tried again
    assert not find_rented(f"ec2:{box_id}").let_in
    assert allowed() == {"203.0.113.9/32", "198.51.100.7/32"}
    # Whoever can't say it is let in nowhere, and nothing is rented.
    monkeypatch.setattr(ec2_account, "OWN_ADDRESS", "<html>")
    with pytest.raises(UnreachableError, match="from which address"):
        world.rent(mark="boxstrap-ba9876543210")
    assert world.simulation.rented == [box_id]


def our_group(world: RentingWorld) -> Any:
    groups = world.simulation.own._moto.describe_security_groups()
    return next(one for one in groups if one.name == "boxstrap")


def test_a_full_ec2_security_group_loses_old_addresses_that_boxstrap_added_for_a_new_one(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, vpc = world.account, world.account._subnet("us-east-1a", "us-east-1")["VpcId"]
    account._group(vpc, "us-east-1", "")
    said = our_group(world).ingress_rules[0].ip_range["Description"]
    more = [{"CidrIp": f"198.51.100.{at}/32", "Description": said} for at in range(59)]
    moto, group = world.simulation.own._moto, our_group(world).id
    moto.authorize_security_group_ingress(group, "tcp", 22, 22, more)
    monkeypatch.setattr(ec2_account, "OWN_ADDRESS", "198.51.100.60")
    account._group(vpc, "us-east-1", "")
    ranges = [rule.ip_range for rule in our_group(world).ingress_rules]
    assert len(ranges) == 31  # those of hosted CI never come again; whoever does is let in again
    assert "198.51.100.60/32" in {each["CidrIp"] for each in ranges}
    assert all(_OUR_RULE.fullmatch(each["Description"]) for each in ranges)


def test_an_ec2_security_group_that_the_user_filled_is_named_and_left_unchanged(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.rent()
    full = error_text("RulesPerSecurityGroupLimitExceeded", "The maximum number is reached.")
    monkeypatch.setattr(ec2_account, "OWN_ADDRESS", "198.51.100.1")
    (rule,) = our_group(world).ingress_rules
    rule.ip_range["Description"] = "the office"
    world.simulation.fault_on = {"POST /AuthorizeSecurityGroupIngress": (400, full)}
    with pytest.raises(
        NoOfferError, match=r"Its security group boxstrap \(sg-\w+, us-east-1\) is"
    ) as full_one:
        world.up(another=True)
    assert full_one.value.is_final
    assert len(our_group(world).ingress_rules) == 1


def test_up_uses_the_ec2_security_group_that_another_process_made_at_the_same_moment(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.rent()
    account = world.account
    own, looks = account._find_group, list[str]()

    def late(*asked: str) -> Any:
        looks.append(asked[0])
        return own(*asked) if len(looks) > 2 else None

    monkeypatch.setattr(account, "_find_group", late)
    vpc = account._subnet("us-east-1a", "us-east-1")["VpcId"]
    assert account._group(vpc, "us-east-1", "") == our_group(world).id
    # Not all of EC2 knows one at once.
    unknown = error_text("InvalidGroup.NotFound", "The security group does not exist")
    for change in ("AuthorizeSecurityGroupIngress", "RunInstances"):
        monkeypatch.setattr(ec2_account, "OWN_ADDRESS", f"198.51.100.{len(change)}")
        world.simulation.fault_on = {f"POST /{change}": (400, unknown)}
        assert world.up(another=True)[1]


def test_with_boxstrap_let_in_set_the_ec2_security_group_admits_ssh_from_that_range_alone(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOXSTRAP_LET_IN", "198.51.100.0/24")
    world.up()
    assert [x.ip_range["CidrIp"] for x in our_group(world).ingress_rules] == ["198.51.100.0/24"]
    assert "lets in: ssh from 198.51.100.0/24 alone" in world.heard.lines
    monkeypatch.setenv("BOXSTRAP_LET_IN", "198.51.100.7/24")
    with pytest.raises(UsageError, match="has host bits set"):
        world.rent(mark="boxstrap-ba9876543210")


def test_up_stops_after_one_unreachable_ec2_box_and_names_the_address_it_let_in(
    world: RentingWorld,
) -> None:
    renter = world.renter(limit=100.0, loading_s=300.0)
    renter._arrival = dataclasses.replace(renter._arrival, answers=lambda _: False)
    with pytest.raises(NoOfferError) as refused:
        renter.run(world._set_up)
    assert refused.value.is_final
    assert f"lets in ssh from {ec2_account.OWN_ADDRESS}/32 alone" in refused.value.what
    assert "BOXSTRAP_LET_IN=" in refused.value.hint
    assert world.simulation.rented == world.simulation.destroyed
    assert len(world.simulation.rented) == 1


def test_ec2_boxes_of_one_network_reach_only_each_other(world: RentingWorld) -> None:
    first, second, apart = "0123456789ab", "123456789abc", "23456789abcd"
    order = RentOrder(network="cluster")
    for mark in (first, second):
        world.rent(order, mark=f"boxstrap-{mark}")
    changed = [each for each in world.simulation.changed if "Authorize" in each]
    assert len(changed) == 2  # this machine's address, and its own members: once
    world.rent(mark=f"boxstrap-{apart}")
    groups = {one.name: one for one in world.simulation.own._moto.describe_security_groups()}
    shared = groups["boxstrap-cluster"]
    (own,) = (rule for rule in shared.ingress_rules if rule.source_group)
    assert (own.ip_protocol, own.source_group["GroupId"]) == ("-1", shared.id)
    assert not [rule for rule in groups["boxstrap"].ingress_rules if rule.source_group]
    asked = {box.label: box.order for box in world.simulation.boxes if box.order}
    used = {
        mark: asked[f"boxstrap-{mark}"]["NetworkInterface.1.SecurityGroupId.1"]
        for mark in (first, second, apart)
    }
    assert used == {first: shared.id, second: shared.id, apart: groups["boxstrap"].id}
    # Another address of this machine is let into the group of its network, too.
    ours = next(box for box in world.simulation.boxes if box.label == f"boxstrap-{first}")
    assert not world.account.let_in(ours.id)


def test_a_second_ec2_box_of_one_network_is_rented_in_the_same_zone(world: RentingWorld) -> None:
    world.simulation.offers += offers_at("ec2", "us-east-1b")
    order = RentOrder(network="cluster", beside="ec2:g5.xlarge/us-east-1b")
    fitting, others = offers_of([world.account], order)
    assert [offer.machine for offer in fitting] == ["g5.xlarge/us-east-1b"]
    assert "not ec2:g5.xlarge/us-east-1b, as the first box" in others[0].misses(order)


def test_up_rents_nothing_when_the_ec2_security_group_can_not_be_made(world: RentingWorld) -> None:
    for change in ("CreateSecurityGroup", "AuthorizeSecurityGroupIngress"):
        world.simulation.fault_on = {f"POST /{change}": "cut"}
        with pytest.raises(UnreachableError, match="Nothing was rented") as error:
            world.up()
        assert not isinstance(error.value, UndecidedError)
        assert rental.all_rentals() == []
    world.up()


def test_an_ec2_box_whose_status_checks_fail_is_replaced_by_another(world: RentingWorld) -> None:
    world.simulation.offers[0].fate = "dies"
    box, _ = world.up()
    assert box.box_id == "9002"
    assert any("its checks fail" in line or "broken" in line for line in world.heard.lines)
    assert world.simulation.clock.now - box.asked < 600


def test_ec2_addresses_and_disks_without_a_box_are_listed_with_price(world: RentingWorld) -> None:
    box, _ = world.up()
    account = world.account
    moto = world.simulation.own._moto
    assert account.leftovers() == []
    address = moto.allocate_address("vpc").public_ip
    volume = moto.create_volume(size="100", zone_name="us-east-1a").id
    moto.create_snapshot(volume, "not ours")
    ours = moto.create_snapshot(volume, "of ours")
    ours.add_tags({"boxstrap": box.mark})
    left = {each.kind: each for each in account.leftovers()}
    assert set(left) == {"Elastic IP", "volume", "snapshot"}
    assert (left["Elastic IP"].id, left["Elastic IP"].price) == (address, 0.005)
    assert left["volume"].id == volume
    assert left["volume"].price == pytest.approx(100 * 0.08 / 730)
    assert left["snapshot"].id == ours.id


def test_a_missing_aws_permission_is_named_in_the_refusal(world: RentingWorld) -> None:
    for ask in ("DescribeInstanceTypes", "GetProducts", "DescribeRegions"):
        world.simulation.fault_on = {f"POST /{ask}": "forbidden"}
        account = world.account
        with pytest.raises(RefusedKeyError, match="a test: UnauthorizedOperation"):
            account.boxes() if ask == "DescribeRegions" else account.catalog(RentOrder())


def test_ec2_boxes_are_listed_although_another_region_is_closed_to_the_user(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    box_id = world.rent()
    account = world.account
    own = account._instances

    def closed(region: str, **asked: object) -> list[dict[str, object]]:
        if region == "ap-east-1":
            raise RefusedKeyError("UnauthorizedOperation")
        return own(region, **asked)

    monkeypatch.setattr(account, "_instances", closed)
    regions = [{"RegionName": name} for name in ("ap-east-1", "us-east-1")]
    ask = account._aws.ask
    monkeypatch.setattr(
        account._aws,
        "ask",
        lambda what, *rest, **asked: (
            {"Regions": regions} if what == "describe_regions" else ask(what, *rest, **asked)
        ),
    )
    assert [box.id for box in account.boxes()] == [box_id]
    monkeypatch.setenv("AWS_REGION", "ap-east-1")  # one's own
    with pytest.raises(RefusedKeyError):
        account.boxes()


def test_boxes_of_other_ec2_regions_are_listed_when_one_is_down(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    box, _ = world.up()
    aws = world.simulation.own
    assert aws
    aws.regions.add("eu-west-1")
    aws.away.add("eu-west-1")
    with pytest.raises(PartialListError, match=r"leaves out eu-west-1: .*503") as part:
        world.account.boxes()
    assert [one.id for one in part.value.boxes] == [box.box_id]
    with pytest.raises(PartialListError):
        world.account.find_mark(MARK)  # it may be there
    listed = ask_accounts()  # as `boxes --all` does, which would wait for seconds
    assert box.host in listed.text()
    with pytest.raises(UnreachableError, match="leaves out eu-west-1"):
        listed.raise_for_status()
    # Also where it is the user's own one.
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    began = world.simulation.clock.now
    world.down(box)
    assert world.simulation.clock.now - began < 30
    assert world.simulation.destroyed == [box.box_id]


def test_the_documented_ci_workflow_gives_its_ec2_box_back_after_three_hours(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/ci/train.yml with the steps for EC2: each gives the role for an hour, as by default."""
    text = (HERE / "docs/ci/train.yml").read_text()
    text = re.sub(r"(?m)^( +)# (- uses:|  if:|  with:|    role|    aws)", r"\1\2", text)
    clock, until, boxes = world.simulation.clock, 0.0, []
    for step in yaml.safe_load(text)["jobs"]["train"]["steps"]:
        if "configure-aws-credentials" in step.get("uses", ""):
            until = clock.now + float(step["with"].get("role-duration-seconds", 3600))
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY if clock.now < until else "over")
        command = step.get("run", "")
        if command.startswith("boxstrap up"):
            boxes.append(world.up()[0])
        elif command == "boxstrap wait":
            clock.sleep(3 * 3600.0)
        elif command.startswith("boxstrap down"):
            world.down(boxes[0])
    assert world.simulation.destroyed == [box.box_id for box in boxes] != []


def test_boxes_all_names_a_refused_aws_key_only_if_an_ec2_box_is_known_here(
    world: RentingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [answer.provider.name for answer in ask_accounts().accounts] == ["ec2"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    assert ask_accounts().accounts == []
    from bootstrap.link import record

    record.save_box(record.KnownBox("ec2-i-1", "ec2:i-1"))
    (answer,) = ask_accounts().accounts
    assert answer.error
    assert "it refuses the key of AWS_ACCESS_KEY_ID: AuthFailure" in answer.error.what
    assert not answer.error.what.endswith("..")


def test_an_ec2_request_is_repeated_after_a_temporary_error(world: RentingWorld) -> None:
    for fault in ("500", "cut", "429", "nonsense after"):
        world.simulation.fault_on = {"POST /DescribeInstanceTypes": fault}
        assert len(world.account.catalog(RentOrder())) == 4
    with simulated("ec2") as elsewhere:
        gone = elsewhere.url
    patched = pytest.MonkeyPatch()
    patched.setenv("AWS_ENDPOINT_URL", gone)
    with pytest.raises(UnreachableError, match="no connection to ec2"):
        world.account.boxes()
    patched.undo()


def test_a_rental_record_without_the_field_spot_means_a_box_that_is_not_spot(
    world: RentingWorld,
) -> None:
    import json

    box, _ = world.up(order=SPOT)
    file = rental._folder() / f"{box.mark}.json"
    told = json.loads(file.read_text())
    assert told.pop("spot") is True
    file.write_text(json.dumps(told))
    assert rental.all_rentals() == [dataclasses.replace(box, spot=False)]
    assert KEY not in file.read_text()


def test_the_quota_named_for_ec2_spot_p5_instances_is_not_that_of_other_spot_instances() -> None:
    names = {("p5.4xlarge", True): "L-C4BD4855", ("p4d.24xlarge", True): "L-7212CCBC"}
    names |= {("p5.48xlarge", False): "L-417A185B", ("p4d.24xlarge", False): "L-417A185B"}
    for (kind, is_spot), code in names.items():
        assert quota_name(kind, is_spot=is_spot).startswith(f"{code} (")


def test_an_unknown_aws_error_while_renting_is_reported_as_perhaps_rented() -> None:
    api = aws_api.AwsApi("ec2", "AWS_PROFILE", lambda _: None)
    said = {"Code": "NoSuchKey", "ResponseMetadata": {"HTTPStatusCode": 404}}
    assert isinstance(api._error_of(said, "run_instances"), UndecidedError)
