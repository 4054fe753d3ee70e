"""AWS EC2: instances with GPUs, on demand and spot, by boto3 (the extra `boxstrap[aws]`).

A box's id is its instance's id with its region (`i-0abc_eu-west-1`); without one it is in
us-east-1, whatever region the user's settings name: an instance that is looked for in another
region would seem to be gone.
"""

import base64
import contextlib
import dataclasses
import ipaddress
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from bootstrap.errors import BoxstrapError, UnreachableError, UsageError
from bootstrap.providers import api, ec2_market
from bootstrap.providers.api_key import ApiKey
from bootstrap.providers.aws_api import HOME, NO_RIGHT, AwsApi, AwsChain
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import Leftover, Offer, RentedBox, RentedState, RentOrder, StopRule

TAG = "boxstrap"
"""The tag with the mark, on an instance and its volume; also the security group's name, with that
of the network behind it for boxes that share one."""
MARKER = "/etc/boxstrap-shutdown"
"""Says to the box what shutting down does to it, and what it costs: its lease ends it by that."""
USER = "ubuntu"
_IMAGE = "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
_IMAGE_NAME = re.compile(r"ami-[0-9a-f]{8,17}|/aws/service/[A-Za-z0-9/._-]+")
_DISK_GB_HOUR = 0.08 / 730  # dollars of gp3, about: it differs by region
_ADDRESS_HOUR = 0.005
_STATES = {
    "pending": RentedState.STARTING,
    "running": RentedState.RUNNING,
    "stopping": RentedState.STOPPED,
    "stopped": RentedState.STOPPED,
    "shutting-down": RentedState.GONE,
    "terminated": RentedState.GONE,
}
_GONE = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
_SAME_RULE, _SAME_GROUP = "InvalidPermission.Duplicate", "InvalidGroup.Duplicate"
_FULL_GROUP = "RulesPerSecurityGroupLimitExceeded"
_NO_SUBNET = "no default subnet"
_SHOWS_S = (1.0, 2.0, 4.0, 8.0)
"""Seconds between looks for a group that is there, and not listed yet."""
_RANGES = {4: ("IpRanges", "CidrIp"), 6: ("Ipv6Ranges", "CidrIpv6")}
_OUR_RULE = re.compile(rf"{TAG} \d{{4}}-\d\d-\d\d")
"""The description of a rule of ours, with the day on which it was made."""
LET_IN = "BOXSTRAP_LET_IN"
"""The variable with the range that is let in, where SSH leaves by another address than https."""


class Ec2(CloudAccount):
    """An account at AWS, for EC2."""

    name = ec2_market.NAME
    title = "AWS EC2"
    keys = AwsChain("AWS_ACCESS_KEY_ID", ("~/.aws/credentials", "~/.aws/config"))
    address = "https://checkip.amazonaws.com"
    """Of AWS's own service that says from which address one comes; all else is asked by boto3."""
    is_ambient = True
    stops = StopRule("its EBS disk alone (not /opt/dlami/nvme)", "its disk")
    stops_spot = False
    destroys_itself = False
    shares_network = True
    refusals: ClassVar[Mapping[object, api.Refusal]] = {
        **CloudAccount.refusals,
        **dict.fromkeys(NO_RIGHT, api.LACKS_RIGHT),
        "OptInRequired": api.Refusal("your AWS account is not signed up for EC2 yet"),
        "PendingVerification": api.Refusal("AWS still verifies your account"),
        "Blocked": api.Refusal(
            "AWS has blocked your account: the balance of its bills, or its contact"
        ),
        _FULL_GROUP: api.Refusal(),
        **dict.fromkeys((*ec2_market.OVER_QUOTA, "Unsupported", _NO_SUBNET), api.THIS_OFFER),
        **dict.fromkeys(("InsufficientInstanceCapacity", "SpotMaxPriceTooLow"), api.NONE_LEFT),
    }

    def __init__(self, key: ApiKey | None) -> None:
        super().__init__(key)
        self._source = key.source if key else ""
        self._api = api.Api(self.name, self.address, None)  # no key: it is asked for nothing else
        self._aws = AwsApi(self.name, self._source, self._api.pause)
        self._market = ec2_market.Ec2Market(self._aws)
        self._paid = dict[str, float | None]()
        self._lets_in = ""

    @property
    def has_key(self) -> bool:
        return bool(self._source)

    @property
    def answered_at(self) -> float | None:
        return self._aws.answered_at

    # Boxes

    def boxes(self) -> Sequence[RentedBox]:
        """Return the boxes that have our tag, of every region: an account may have a company's."""
        return self._tagged({"tag-key": [TAG]}, self._regions())

    def _around(self, box_id: str) -> Sequence[RentedBox]:
        """As `CloudAccount._around`: those of its region, as another one may be down."""
        return self._tagged({"tag-key": [TAG]}, [_place_of(box_id)[1]])

    def find_mark(self, mark: str) -> Sequence[RentedBox]:
        return self._tagged({f"tag:{TAG}": [mark]}, self._regions())

    def _regions(self) -> list[str]:
        """Return the regions of the account, by the user's own one, or by another if it is down."""
        try:
            found = self._aws.ask("describe_regions")
        except api.RefusedKeyError:
            raise
        except UnreachableError:
            other = next(each for each in (HOME, "us-west-2") if each != self._aws.region)
            found = self._aws.ask("describe_regions", other)
        return [one["RegionName"] for one in found["Regions"]]

    def _tagged(
        self, tagged: Mapping[str, Sequence[str]], regions: Sequence[str]
    ) -> Sequence[RentedBox]:
        wanted = ec2_market.aws_filters({**tagged, "instance-state-name": _THERE})

        away = dict[str, UnreachableError]()

        def of(region: str) -> Sequence[RentedBox]:
            try:
                found = self._instances(region, Filters=wanted)
            except api.RefusedKeyError:
                # Companies close regions; then nothing can be rented there either.
                if region == self._aws.region:
                    raise
                return ()
            except UnreachableError as error:
                away[region] = error
                return ()
            return [self._rented(one, region) for one in found]

        every = [box for boxes in ec2_market.ask_each(of, regions) for box in boxes]
        return self._unless_away(every, away)

    def _box(self, box_id: str) -> RentedBox | None:
        instance, region = _place_of(box_id)
        try:
            found = self._instances(region, InstanceIds=[instance])
        except api.RefusedError as refused:
            if refused.code in _GONE:
                return None
            raise
        if not found:
            return None
        box = self._rented(found[0], region)
        if box.state is RentedState.RUNNING and self._is_impaired(instance, region):
            return dataclasses.replace(box, state=RentedState.BROKEN, said="its checks fail")
        return box

    def _is_impaired(self, instance: str, region: str) -> bool:
        answer = self._aws.ask("describe_instance_status", region, InstanceIds=[instance])
        checks = (
            status[which]["Status"]
            for status in answer["InstanceStatuses"]
            for which in ("SystemStatus", "InstanceStatus")
        )
        return "impaired" in checks

    def _instances(self, region: str, **asked: object) -> list[dict[str, Any]]:
        return ec2_market.find_instances(self._aws, region, **asked)

    def _rented(self, one: Mapping[str, Any], region: str) -> RentedBox:
        self._aws.used.add(region)
        state = _STATES.get(one["State"]["Name"], RentedState.UNKNOWN)
        tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}
        address = one.get("PublicIpAddress", "") if state is RentedState.RUNNING else ""
        is_stopped, is_gone = state is RentedState.STOPPED, state is RentedState.GONE
        started = one.get("LaunchTime")
        return RentedBox(
            provider=self.name,
            id=_id_of(one["InstanceId"], region),
            name=tags.get(TAG, tags.get("Name", "")),
            state=state,
            gpu=one["InstanceType"],
            address=address,
            port=22,
            user=USER,
            price=None if is_gone else self._price_of(one, region),
            stopped_price=self._disk_price(one, region) if is_stopped else None,
            since=started.timestamp() if started else None,
            is_spot=one.get("InstanceLifecycle") == "spot",
            said=one.get("StateReason", {}).get("Message", ""),
        )

    def _price_of(self, one: Mapping[str, Any], region: str) -> float | None:
        """Return what an instance costs now, asked for once; None if nobody says."""
        box_id = one["InstanceId"]
        if box_id not in self._paid:
            self._paid[box_id] = None
            is_spot = one.get("InstanceLifecycle") == "spot"
            with contextlib.suppress(BoxstrapError):
                zone = one["Placement"]["AvailabilityZone"]
                price = self._market.price(one["InstanceType"], zone, region, is_spot=is_spot)
                self._paid[box_id] = price
        return self._paid[box_id]

    def _disk_price(self, one: Mapping[str, Any], region: str) -> float | None:
        disks = [each["Ebs"]["VolumeId"] for each in one.get("BlockDeviceMappings", ())]
        with contextlib.suppress(BoxstrapError):
            found = self._aws.ask("describe_volumes", region, VolumeIds=disks)["Volumes"]
            size: int = sum(each["Size"] for each in found)
            return round(size * _DISK_GB_HOUR, 6)
        return None

    def log(self, box_id: str) -> Sequence[str]:
        """As `CloudAccount.log`: what it printed on its console."""
        instance, region = _place_of(box_id)
        told = self._aws.ask("get_console_output", region, InstanceId=instance).get("Output", "")
        return str(told).splitlines()

    # Offers

    def _catalog(self, order: RentOrder) -> Sequence[Offer]:
        """Return an offer for each type and zone of one region: what is free, nobody says."""
        if order.volume:
            return ()
        if order.image and not _IMAGE_NAME.fullmatch(order.image):
            raise UsageError(
                f"{order.image} is no image of EC2.",
                where="box.image",
                hint="There it is an AMI (ami-…), or the SSM parameter of one (/aws/service/…).",
            )
        return self._market.offers(order)

    # Changes

    def _rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        kind, zone = offer.id.split("/")
        region = zone[:-1]
        image = self._image(order, offer.arch, region)
        subnet = self._subnet(zone, region)
        group = self._group(subnet["VpcId"], region, order.network)
        device, least_gb = self._root_of(image, region)
        # A spot instance can't be stopped, nor by its shutdown. One on demand is always stopped:
        # one behaviour serves an end at which everything is safe and one at which something isn't.
        end = "terminate" if order.spot else "stop"
        disk = {"VolumeSize": max(order.disk_gb, least_gb), "VolumeType": "gp3"}
        disk["DeleteOnTermination"] = True
        tags = [{"Key": "Name", "Value": mark}, {"Key": TAG, "Value": mark}]
        spot: dict[str, object] = {"SpotInstanceType": "one-time"}
        if order.max_price is not None:
            spot["MaxPrice"] = f"{order.max_price:g}"
        market = {"MarketType": "spot", "SpotOptions": spot}
        wanted = {
            **{"MinCount": 1, "MaxCount": 1, "ClientToken": mark},
            **{"ImageId": image, "InstanceType": kind, "InstanceInitiatedShutdownBehavior": end},
            "UserData": _user_data(public_key, f"{self.name} {end} {offer.price:.6f}"),
            "NetworkInterfaces": [
                {
                    **{"DeviceIndex": 0, "SubnetId": subnet["SubnetId"], "Groups": [group]},
                    **{"AssociatePublicIpAddress": True, "DeleteOnTermination": True},
                }
            ],
            "BlockDeviceMappings": [{"DeviceName": device, "Ebs": disk}],
            "MetadataOptions": {"HttpEndpoint": "enabled", "HttpTokens": "required"},
            "TagSpecifications": [
                {"ResourceType": what, "Tags": tags} for what in ("instance", "volume")
            ],
            **({"InstanceMarketOptions": market} if order.spot else {}),
        }
        try:
            made = self._aws.change("run_instances", region, **wanted).get("Instances", ())
        except api.RefusedError as refused:
            if refused.code in ec2_market.OVER_QUOTA:
                quota = ec2_market.quota_name(kind, is_spot=order.spot)
                refused.what += f" Ask AWS for more of {quota}, {region} (Service Quotas)."
            raise
        if len(made) != 1:
            raise api.UndecidedError(
                "it says that it rented a box, but not which.", where=self.name
            )
        return _id_of(made[0]["InstanceId"], region)

    def _image(self, order: RentOrder, arch: str, region: str) -> str:
        if order.image.startswith("ami-"):
            return order.image
        name = order.image or _IMAGE.format("arm64" if arch == "arm64" else "x86_64")
        found = self._aws.ask("get_parameter", region, service="ssm", Name=name)
        return str(found["Parameter"]["Value"])

    def _root_of(self, image: str, region: str) -> tuple[str, int]:
        """Return the name of an image's first disk, and the least GB that it may have."""
        found = self._aws.ask("describe_images", region, ImageIds=[image])["Images"]
        if not found:
            raise api.RefusedError(f"it has no image {image} in {region}.", where=self.name)
        device = found[0].get("RootDeviceName", "/dev/sda1")
        sizes = (
            each.get("Ebs", {}).get("VolumeSize", 0)
            for each in found[0].get("BlockDeviceMappings", ())
            if each.get("DeviceName") == device
        )
        return device, next(sizes, 0)

    def _subnet(self, zone: str, region: str) -> Mapping[str, Any]:
        wanted = ec2_market.aws_filters({"availability-zone": [zone], "default-for-az": ["true"]})
        found = self._aws.ask("describe_subnets", region, Filters=wanted)["Subnets"]
        if not found:
            raise api.RefusedError(
                f"your account has no default subnet in {zone}: aws ec2 create-default-subnet "
                f"--availability-zone {zone}.",
                where=self.name,
                code=_NO_SUBNET,
            )
        return found[0]  # type: ignore[no-any-return]

    def _group(self, vpc: str, region: str, network: str) -> str:
        """Return our security group, made if need be, which lets this machine's address in. Boxes
        of a network have one of their own, which lets them in among themselves."""
        name = f"{TAG}-{network}" if network else TAG
        with self._before_rental("its security group"):
            group = self._find_group(name, vpc, region) or self._make_group(name, vpc, region)
            self._admit(group, region)
            if network:
                self._admit_members(group, region)
        return str(group["GroupId"])

    def _find_group(self, name: str, vpc: str, region: str) -> Mapping[str, Any] | None:
        wanted = ec2_market.aws_filters({"group-name": [name], "vpc-id": [vpc]})
        found = self._aws.ask("describe_security_groups", region, Filters=wanted)["SecurityGroups"]
        return next(iter(found), None)

    def _make_group(self, name: str, vpc: str, region: str) -> Mapping[str, Any]:
        about = "boxstrap: SSH, from the addresses that rented a box"
        asked = {"GroupName": name, "Description": about, "VpcId": vpc}
        try:
            made = self._aws.change("create_security_group", region, **asked)
        except api.RefusedError as refused:
            if refused.code != _SAME_GROUP:
                raise
            for pause in _SHOWS_S:  # another process made it a moment ago
                if found := self._find_group(name, vpc, region):
                    return found
                self._api.pause(pause)
            raise api.UndecidedError("its group isn't listed yet.", where=self.name) from None
        if not made.get("GroupId"):
            raise api.UndecidedError("it doesn't say which it made.", where=self.name)
        return {"GroupId": made["GroupId"], "GroupName": name}

    def _admit(self, group: Mapping[str, Any], region: str) -> bool:
        """Let this machine's address in by SSH; return whether the group didn't already.

        The 60 addresses that a group takes are soon used up by hosted CI: then the older half of
        ours goes. Whoever comes from one of those is let in again by their next login.
        """
        own = self._own_network()
        self._lets_in = str(own)
        ranges, field = _RANGES[own.version]
        ours, every = list[tuple[str, str]](), set[str]()
        for rule in group.get("IpPermissions", ()):
            if not rule.get("FromPort", 0) <= 22 <= rule.get("ToPort", 0):
                continue
            every |= {str(each.get(field)) for each in rule.get(ranges, ())}
            if rule.get("FromPort") == rule.get("ToPort"):
                ours += [
                    (said, str(each[field]))
                    for each in rule.get(ranges, ())
                    if not (said := each.get("Description", "")) or _OUR_RULE.fullmatch(said)
                ]
        if str(own) in every:
            return False
        today = time.strftime("%Y-%m-%d", time.gmtime(self._aws.answered_at))
        new = _ssh_from(ranges, [{field: str(own), "Description": f"{TAG} {today}"}])
        try:
            self._add_rule(group, new, region)
        except api.RefusedError as refused:
            old = [{field: each} for _, each in sorted(ours)[: (len(ours) + 1) // 2]]
            if refused.code != _FULL_GROUP:
                raise
            if not old:
                named = f"{group.get('GroupName', TAG)} ({group['GroupId']}, {region})"
                refused.what += f" Its security group {named} is full: remove rules that nobody "
                refused.what += "needs any more, or delete it while no box is in it."
                raise
            asked = {"GroupId": group["GroupId"], "IpPermissions": [_ssh_from(ranges, old)]}
            self._aws.change("revoke_security_group_ingress", region, **asked)
            self._add_rule(group, new, region)
        return True

    def _admit_members(self, group: Mapping[str, Any], region: str) -> None:
        """Let all boxes of the group reach each other on all ports, unless they do."""
        own = group["GroupId"]
        pairs = (rule.get("UserIdGroupPairs", ()) for rule in group.get("IpPermissions", ()))
        if own not in [each.get("GroupId") for some in pairs for each in some]:
            rule = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": own}]}
            self._add_rule(group, rule, region)

    def _add_rule(self, group: Mapping[str, Any], rule: Mapping[str, Any], region: str) -> None:
        asked = {"GroupId": group["GroupId"], "IpPermissions": [rule]}
        try:
            self._aws.change("authorize_security_group_ingress", region, **asked)
        except api.RefusedError as refused:
            if refused.code != _SAME_RULE:
                raise

    def _own_network(self) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
        """Return what is let in: the range that the user set, or the address of our requests."""
        named = os.environ.get(LET_IN, "").strip()
        said = named or self._api.text("/").strip()
        try:
            return ipaddress.ip_network(said)
        except ValueError as error:
            if named:
                raise UsageError(
                    f"{named!r} is no range of addresses: {error}.",
                    where=LET_IN,
                    hint="As in: 198.51.100.0/24",
                ) from None
            raise UnreachableError(
                "nothing says from which address this machine comes.",
                where=self.address,
                hint=f"Its security group would let nobody in. Name it: {LET_IN}=198.51.100.0/24",
            ) from None

    @property
    def lets_in(self) -> str:
        return self._lets_in

    def let_in(self, box_id: str) -> bool:
        """As `CloudAccount.let_in`, if it is behind our security group."""
        instance, region = _place_of(box_id)
        found = self._instances(region, InstanceIds=[instance])
        nics = [nic for one in found for nic in one["NetworkInterfaces"]]
        groups = [group for nic in nics for group in nic["Groups"]]
        if ours := [one["GroupId"] for one in groups if one["GroupName"].partition("-")[0] == TAG]:
            asked = self._aws.ask("describe_security_groups", region, GroupIds=ours)
            return self._admit(asked["SecurityGroups"][0], region)
        return False

    def destroy(self, box_id: str) -> None:
        instance, region = _place_of(box_id)
        try:
            self._aws.change("terminate_instances", region, InstanceIds=[instance])
        except api.RefusedError as refused:
            if refused.code not in _GONE:
                raise

    def stop(self, box_id: str) -> None:
        """As `CloudAccount.stop`; a spot instance is refused."""
        instance, region = _place_of(box_id)
        self._aws.change("stop_instances", region, InstanceIds=[instance])

    def start(self, box_id: str) -> None:
        instance, region = _place_of(box_id)
        self._aws.change("start_instances", region, InstanceIds=[instance])

    def leftovers(self) -> Sequence[Leftover]:
        """Return addresses and disks that nothing uses, and our snapshots, where boxes were."""
        places = self._aws.used or {self._aws.region}
        return [one for each in sorted(places) for one in self._left_in(each)]

    def _left_in(self, region: str) -> Iterator[Leftover]:
        def left(one: Mapping[str, Any], key: str, kind: str, price: float | None) -> Leftover:
            tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}
            named = f"{one[key]}, {region}"
            size = one.get("Size", one.get("VolumeSize"))
            return Leftover(self.name, one[key], tags.get("Name") or named, kind, size, price)

        for one in self._aws.ask("describe_addresses", region)["Addresses"]:
            if not one.get("AssociationId"):
                yield left(one, "PublicIp", "Elastic IP", _ADDRESS_HOUR)
        free = ec2_market.aws_filters({"status": ["available"]})
        for page in self._aws.pages("describe_volumes", region, Filters=free):
            for one in page["Volumes"]:
                yield left(one, "VolumeId", "volume", one["Size"] * _DISK_GB_HOUR)
        ours = ec2_market.aws_filters({"tag-key": [TAG]})
        for page in self._aws.pages("describe_snapshots", region, OwnerIds=["self"], Filters=ours):
            for one in page["Snapshots"]:
                yield left(one, "SnapshotId", "snapshot", None)


def _ssh_from(ranges: str, places: Sequence[Mapping[str, str]]) -> dict[str, object]:
    return {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, ranges: [*places]}


_THERE = ("pending", "running", "stopping", "stopped")


def _place_of(box_id: str) -> tuple[str, str]:
    instance, _, region = box_id.partition("_")
    return instance, region or HOME


def _id_of(instance: str, region: str) -> str:
    return instance if region == HOME else f"{instance}_{region}"


def _user_data(public_key: str, marker: str) -> str:
    """Return what cloud-init does at the first start: it lets the key in, and writes the marker."""
    said = base64.b64encode(f"{marker}\n".encode()).decode()
    return (
        "#cloud-config\n"
        f"ssh_authorized_keys: [{json.dumps(public_key.strip())}]\n"
        "write_files:\n"
        f"- {{path: {MARKER}, permissions: '0644', encoding: b64, content: {said}}}\n"
    )
