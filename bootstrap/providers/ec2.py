"""AWS EC2: instances with GPUs, on demand and spot, by boto3 (the extra `boxstrap[aws]`).

A box's id is its instance's id with its region (`i-0abc_eu-west-1`); without one it is in
us-east-1, whatever region the user's settings name: an instance that is looked for in another
region would seem to be gone. An offer is one type in one zone, so the next offer is the next zone.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import ipaddress
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, NamedTuple, TypeVar

from bootstrap.errors import BoxstrapError, UnreachableError, UsageError
from bootstrap.providers.api import Api, ApiKey, RefusedError, RefusedKeyError, UndecidedError
from bootstrap.providers.aws_api import HOME, NO_RIGHT, AwsApi, AwsChain
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.offer import Leftover, Offer, RentedBox, RentedState, RentOrder, StopRule

_PRICES = "us-east-1"
"""Where the price list is asked."""
TAG = "boxstrap"
"""The tag with the mark, on an instance and its volume; also the security group's name."""
MARKER = "/etc/boxstrap-shutdown"
"""Says to the box what shutting down does to it, and what it costs: its lease ends it by that."""
USER = "ubuntu"
_IMAGE = "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
_IMAGE_NAME = re.compile(r"ami-[0-9a-f]{8,17}|/aws/service/[A-Za-z0-9/._-]+")
_ARCHS = {"x86_64": "amd64", "arm64": "arm64"}
_ZONE = re.compile(r"([a-z]{2,}(?:-[a-z]+)+-\d)([a-z]?)")
_KINDS = ("g*", "p*")
_DISK_GB_HOUR = 0.08 / 730
"""Dollars of gp3, about: it differs by region."""
_ADDRESS_HOUR = 0.005
_MOST_DISK_GB = 16384
_PARALLEL = 8
_STATES = {
    "pending": RentedState.STARTING,
    "running": RentedState.RUNNING,
    "stopping": RentedState.STOPPED,
    "stopped": RentedState.STOPPED,
    "shutting-down": RentedState.GONE,
    "terminated": RentedState.GONE,
}
_QUOTAS = {
    ("g", False): ("L-DB2E81BA", "Running On-Demand G and VT instances"),
    ("g", True): ("L-3819A6DF", "All G and VT Spot Instance Requests"),
    ("p", False): ("L-417A185B", "Running On-Demand P instances"),
    ("p", True): ("L-7212CCBC", "All P Spot Instance Requests"),
}
"""Of a family of types, on demand and spot: code and name; counted in vCPUs, and 0 at first."""
_OVER_QUOTA = frozenset({"VcpuLimitExceeded", "MaxSpotInstanceCountExceeded"})
_GONE = frozenset({"InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"})
_SAME_RULE = "InvalidPermission.Duplicate"
_T = TypeVar("_T")


class _Kind(NamedTuple):
    """An instance type."""

    name: str
    gpu: str
    gpus: int
    memory_gib: float
    arch: str
    vcpus: int
    has_spot: bool


class Ec2(CloudAccount):
    """An account at AWS, for EC2."""

    name = "ec2"
    title = "AWS EC2"
    keys = AwsChain("AWS_ACCESS_KEY_ID", ("~/.aws/credentials", "~/.aws/config"))
    address = "https://checkip.amazonaws.com"
    """Of AWS's own service that says from which address one comes; all else is asked by boto3."""
    is_ambient = True
    stops = StopRule("its EBS disk alone (not /opt/dlami/nvme)", "its disk")
    stops_spot = False
    destroys_itself = False
    final_refusals: ClassVar[Mapping[object, str]] = {
        **dict.fromkeys(NO_RIGHT, "your credentials lack this permission: docs/providers.md"),
        "OptInRequired": "your AWS account is not signed up for EC2 yet",
        "PendingVerification": "AWS still verifies your account",
        "Blocked": "AWS has blocked your account: the balance of its bills, or its contact",
    }

    def __init__(self, key: ApiKey | None) -> None:
        super().__init__(key)
        self._source = key.source if key else ""
        self._api = Api(self.name, self.address, None)  # no key: it is asked for nothing else
        self._aws = AwsApi(self.name, self._source, self._api.pause)
        self._paid = dict[str, float | None]()

    @property
    def has_key(self) -> bool:
        """As `CloudAccount.has_key`."""
        return bool(self._source)

    @property
    def answered_at(self) -> float | None:
        """As `CloudAccount.answered_at`."""
        return self._aws.answered_at

    # Boxes

    def boxes(self) -> Sequence[RentedBox]:
        """Return the boxes that have our tag, of every region: an account may have a company's."""
        return self._tagged({"Name": "tag-key", "Values": [TAG]})

    def find_mark(self, mark: str) -> Sequence[RentedBox]:
        """As `CloudAccount.find_mark`."""
        return self._tagged({"Name": f"tag:{TAG}", "Values": [mark]})

    def _tagged(self, tagged: Mapping[str, object]) -> Sequence[RentedBox]:
        there = {"Name": "instance-state-name", "Values": [*_THERE]}

        def of(region: str) -> Sequence[RentedBox]:
            try:
                found = self._instances(region, Filters=[tagged, there])
            except RefusedKeyError:
                # Companies close regions; then nothing can be rented there either.
                if region == self._aws.region:
                    raise
                return ()
            return [self._rented(one, region) for one in found]

        regions = [one["RegionName"] for one in self._aws.ask("describe_regions")["Regions"]]
        return [box for boxes in _each(of, regions) for box in boxes]

    def _box(self, box_id: str) -> RentedBox | None:
        instance, region = _place_of(box_id)
        try:
            (found,) = self._instances(region, InstanceIds=[instance])
        except RefusedError as refused:
            if refused.code in _GONE:
                return None
            raise
        box = self._rented(found, region)
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
        pages = self._aws.pages("describe_instances", region, **asked)
        return [one for page in pages for held in page["Reservations"] for one in held["Instances"]]

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
        box_id, kind, zone = one["InstanceId"], one["InstanceType"], one["Placement"]
        if box_id not in self._paid:
            self._paid[box_id] = None
            with contextlib.suppress(BoxstrapError):
                if one.get("InstanceLifecycle") == "spot":
                    prices = self._spot_prices(region, [kind])
                    self._paid[box_id] = prices.get((kind, zone["AvailabilityZone"]))
                else:
                    self._paid[box_id] = self._list_price(region, kind)
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
        named = _ZONE.fullmatch(order.region)
        region = named[1] if named else self._aws.region
        anything = dataclasses.replace(order, max_price=None)
        every = [*self._kinds(region)]
        kinds = {
            kind.name: kind
            for kind in every
            if (kind.has_spot or not order.spot)
            and not _offered(kind, f"{region}a", region, 0.0, order).misses(
                dataclasses.replace(anything, region="")
            )
        }
        zones = self._zones(region, [*kinds])
        names = list(dict.fromkeys(kind for kind, _ in zones))
        if order.spot:
            prices = self._spot_prices(region, names)
        else:
            found = _each(lambda kind: self._list_price(region, kind), names)
            listed = dict(zip(names, found, strict=True))
            prices = {(kind, zone): price for kind, zone in zones if (price := listed[kind])}
        lacks = self._lacks(names, every, region, is_spot=order.spot)
        return [
            dataclasses.replace(
                _offered(kinds[kind], zone, region, prices[kind, zone], order), lacks=lacks[kind]
            )
            for kind, zone in zones
            if (kind, zone) in prices
        ]

    def _kinds(self, region: str) -> Iterator[_Kind]:
        asked = [{"Name": "instance-type", "Values": [*_KINDS]}]
        for page in self._aws.pages("describe_instance_types", region, Filters=asked):
            for one in page["InstanceTypes"]:
                if kind := _kind(one):
                    yield kind

    def _zones(self, region: str, kinds: Sequence[str]) -> list[tuple[str, str]]:
        if not kinds:
            return []
        asked = {"LocationType": "availability-zone"}
        pages = self._aws.pages(
            "describe_instance_type_offerings",
            region,
            Filters=[{"Name": "instance-type", "Values": [*kinds]}],
            **asked,
        )
        found = [one for page in pages for one in page["InstanceTypeOfferings"]]
        return [
            (one["InstanceType"], one["Location"])
            for one in found
            if one["InstanceType"] in kinds and _ZONE.fullmatch(one["Location"])
        ]

    def _list_price(self, region: str, kind: str) -> float | None:
        """Return the list price of a type on demand; None if the list has none."""
        wanted = {
            **{"regionCode": region, "instanceType": kind, "operatingSystem": "Linux"},
            **{"tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"},
        }
        answer = self._aws.ask(
            "get_products",
            _PRICES,
            service="pricing",
            ServiceCode="AmazonEC2",
            Filters=[
                {"Type": "TERM_MATCH", "Field": name, "Value": value}
                for name, value in wanted.items()
            ],
        )
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
            for text in answer["PriceList"]:
                for term in json.loads(text)["terms"]["OnDemand"].values():
                    for row in term["priceDimensions"].values():
                        if price := float(row["pricePerUnit"]["USD"]):
                            return price
        return None

    def _spot_prices(self, region: str, kinds: Sequence[str]) -> dict[tuple[str, str], float]:
        """Return the current spot price by type and zone."""
        if not kinds:
            return {}
        now = self._aws.answered_at or time.time()
        pages = self._aws.pages(
            "describe_spot_price_history",
            region,
            InstanceTypes=[*kinds],
            ProductDescriptions=["Linux/UNIX"],
            StartTime=now,
        )
        rows = sorted(
            (row for page in pages for row in page["SpotPriceHistory"]),
            key=lambda row: str(row["Timestamp"]),
        )
        return {(x["InstanceType"], x["AvailabilityZone"]): float(x["SpotPrice"]) for x in rows}

    def _lacks(
        self, names: Sequence[str], every: Sequence[_Kind], region: str, *, is_spot: bool
    ) -> dict[str, str]:
        """Return for each type what its quota lacks; "" if it covers it, or nobody may read it."""
        sizes = {kind.name: kind.vcpus for kind in every}
        families = {name[0] for name in names}
        left = {
            each: self._left_of_quota(each, sizes, region, is_spot=is_spot) for each in families
        }
        found = dict[str, str]()
        for name in names:
            has, quota = left[name[0]], _quota(name, is_spot=is_spot)
            said = f"{sizes[name]} vCPUs, and {has or 0:g} are left of {quota}, {region}: ask AWS "
            is_covered = has is None or has >= sizes[name]
            found[name] = "" if is_covered else f"{said}for more (Service Quotas)"
        return found

    def _left_of_quota(
        self, family: str, sizes: Mapping[str, int], region: str, *, is_spot: bool
    ) -> float | None:
        code, _ = _QUOTAS[family, is_spot]
        asked = {"ServiceCode": "ec2", "QuotaCode": code}
        try:
            quota = self._aws.ask("get_service_quota", region, service="service-quotas", **asked)
        except (RefusedKeyError, RefusedError):
            return None  # a launch says it, too
        own = [name for name in sizes if name.startswith(family)]
        running = {"instance-type": own, "instance-state-name": ["pending", "running"]}
        filters = [{"Name": name, "Values": values} for name, values in running.items()]
        used = sum(
            sizes[one["InstanceType"]]
            for one in self._instances(region, Filters=filters)
            if (one.get("InstanceLifecycle") == "spot") == is_spot
        )
        left: float = quota["Quota"]["Value"] - used
        return max(0.0, left)

    # Changes

    def _rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        kind, zone = offer.id.split("/")
        region = zone[:-1]
        image = self._image(order, offer.arch, region)
        subnet = self._subnet(zone, region)
        group = self._group(subnet["VpcId"], region)
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
        except RefusedError as refused:
            if refused.code in _OVER_QUOTA:
                quota = _quota(kind, is_spot=order.spot)
                refused.what += f" Ask AWS for more of {quota}, {region} (Service Quotas)."
            raise
        if len(made) != 1:
            raise UndecidedError("it says that it rented a box, but not which.", where=self.name)
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
            raise RefusedError(f"it has no image {image} in {region}.", where=self.name)
        device = found[0].get("RootDeviceName", "/dev/sda1")
        sizes = (
            each.get("Ebs", {}).get("VolumeSize", 0)
            for each in found[0].get("BlockDeviceMappings", ())
            if each.get("DeviceName") == device
        )
        return device, next(sizes, 0)

    def _subnet(self, zone: str, region: str) -> Mapping[str, Any]:
        wanted = {"availability-zone": [zone], "default-for-az": ["true"]}
        filters = [{"Name": name, "Values": values} for name, values in wanted.items()]
        found = self._aws.ask("describe_subnets", region, Filters=filters)["Subnets"]
        if not found:
            raise RefusedError(
                f"your account has no default subnet in {zone}: aws ec2 create-default-subnet "
                f"--availability-zone {zone}.",
                where=self.name,
            )
        return found[0]  # type: ignore[no-any-return]

    def _group(self, network: str, region: str) -> str:
        """Return our security group, made if need be, which lets this machine's address in."""
        named = {"group-name": [TAG], "vpc-id": [network]}
        filters = [{"Name": name, "Values": values} for name, values in named.items()]
        found = self._aws.ask("describe_security_groups", region, Filters=filters)["SecurityGroups"]
        try:
            if not found:
                about = "boxstrap: SSH, from the addresses that rented a box"
                asked = {"GroupName": TAG, "Description": about, "VpcId": network}
                made = self._aws.change("create_security_group", region, **asked)
                if not made.get("GroupId"):
                    raise UndecidedError("it doesn't say which it made.", where=self.name)
                found = [{"GroupId": made["GroupId"]}]
            self._admit(found[0], region)
        except UndecidedError as error:  # of no rental
            raise UnreachableError(
                f"its security group could not be set up: {error.what} Nothing was rented.",
                where=self.name,
                hint="Run the same command again.",
            ) from None
        return str(found[0]["GroupId"])

    def _admit(self, group: Mapping[str, Any], region: str) -> None:
        """Let this machine's present address in by SSH, unless the group does so already."""
        address = self._own_address()
        versions = {4: ("IpRanges", "CidrIp", 32), 6: ("Ipv6Ranges", "CidrIpv6", 128)}
        ranges, field, bits = versions[address.version]
        allowed = {
            each.get(field)
            for rule in group.get("IpPermissions", ())
            if rule.get("FromPort", 0) <= 22 <= rule.get("ToPort", 0)
            for each in rule.get(ranges, ())
        }
        if f"{address}/{bits}" in allowed:
            return
        rule = {
            **{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22},
            ranges: [{field: f"{address}/{bits}"}],
        }
        try:
            self._aws.change(
                "authorize_security_group_ingress",
                region,
                GroupId=group["GroupId"],
                IpPermissions=[rule],
            )
        except RefusedError as refused:
            if refused.code != _SAME_RULE:
                raise

    def _own_address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
        said = self._api.text("/").strip()
        try:
            return ipaddress.ip_address(said)
        except ValueError:
            raise UnreachableError(
                "nothing says from which address this machine comes.",
                where=self.address,
                hint="Its security group would let nobody in. Run the same command again.",
            ) from None

    def let_in(self, box_id: str) -> None:
        """As `CloudAccount.let_in`, if it is behind our security group."""
        instance, region = _place_of(box_id)
        (found,) = self._instances(region, InstanceIds=[instance])
        groups = [group for nic in found["NetworkInterfaces"] for group in nic["Groups"]]
        ours = [one["GroupId"] for one in groups if one["GroupName"] == TAG]
        if ours:
            asked = self._aws.ask("describe_security_groups", region, GroupIds=ours)
            self._admit(asked["SecurityGroups"][0], region)

    def destroy(self, box_id: str) -> None:
        """As `CloudAccount.destroy`."""
        instance, region = _place_of(box_id)
        try:
            self._aws.change("terminate_instances", region, InstanceIds=[instance])
        except RefusedError as refused:
            if refused.code not in _GONE:
                raise

    def stop(self, box_id: str) -> None:
        """As `CloudAccount.stop`; a spot instance is refused."""
        instance, region = _place_of(box_id)
        self._aws.change("stop_instances", region, InstanceIds=[instance])

    def start(self, box_id: str) -> None:
        """As `CloudAccount.start`."""
        instance, region = _place_of(box_id)
        self._aws.change("start_instances", region, InstanceIds=[instance])

    def leftovers(self) -> Sequence[Leftover]:
        """Return addresses and disks that nothing uses, and our snapshots, where boxes were."""
        return [
            one
            for each in sorted({self._aws.region, *self._aws.used})
            for one in self._left_in(each)
        ]

    def _left_in(self, region: str) -> Iterator[Leftover]:
        def left(one: Mapping[str, Any], key: str, kind: str, price: float | None) -> Leftover:
            tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags", ())}
            named = f"{one[key]}, {region}"
            size = one.get("Size", one.get("VolumeSize"))
            return Leftover(self.name, one[key], tags.get("Name") or named, kind, size, price)

        for one in self._aws.ask("describe_addresses", region)["Addresses"]:
            if not one.get("AssociationId"):
                yield left(one, "PublicIp", "Elastic IP", _ADDRESS_HOUR)
        free = [{"Name": "status", "Values": ["available"]}]
        for page in self._aws.pages("describe_volumes", region, Filters=free):
            for one in page["Volumes"]:
                yield left(one, "VolumeId", "volume", one["Size"] * _DISK_GB_HOUR)
        ours = [{"Name": "tag-key", "Values": [TAG]}]
        for page in self._aws.pages("describe_snapshots", region, OwnerIds=["self"], Filters=ours):
            for one in page["Snapshots"]:
                yield left(one, "SnapshotId", "snapshot", None)


_THERE = ("pending", "running", "stopping", "stopped")


def _place_of(box_id: str) -> tuple[str, str]:
    """Return the instance and the region of a box's id."""
    instance, _, region = box_id.partition("_")
    return instance, region or HOME


def _id_of(instance: str, region: str) -> str:
    return instance if region == HOME else f"{instance}_{region}"


def _each(do: Callable[[str], _T], names: Sequence[str]) -> list[_T]:
    """Return what `do` returns for each, asked for at the same time."""
    with ThreadPoolExecutor(_PARALLEL, thread_name_prefix="ec2") as pool:
        return list(pool.map(do, names))


def _kind(one: Mapping[str, Any]) -> _Kind | None:
    """Return an instance type; None if it has no whole GPU of NVIDIA."""
    gpus = one.get("GpuInfo", {}).get("Gpus", ())
    arch = next(
        (_ARCHS[x] for x in one["ProcessorInfo"]["SupportedArchitectures"] if x in _ARCHS), ""
    )
    if len(gpus) != 1 or gpus[0].get("Manufacturer") != "NVIDIA" or not gpus[0].get("Count"):
        return None
    memory = gpus[0].get("MemoryInfo", {}).get("SizeInMiB", 0) / 1024
    return _Kind(
        one["InstanceType"],
        gpus[0]["Name"],
        gpus[0]["Count"],
        memory,
        arch,
        one["VCpuInfo"]["DefaultVCpus"],
        "spot" in one.get("SupportedUsageClasses", ()),
    )


def _offered(kind: _Kind, zone: str, region: str, price: float, order: RentOrder) -> Offer:
    return Offer(
        provider=Ec2.name,
        id=f"{kind.name}/{zone}",
        gpu=kind.gpu,
        gpu_count=kind.gpus,
        price=price,
        bid=price if order.spot else None,
        memory_gib=kind.memory_gib,
        arch=kind.arch,
        is_secure=True,
        region=f"{region}, {zone}",
        machine=f"{kind.name}/{zone}",
        disk_gb=_MOST_DISK_GB,
    )


def _quota(kind: str, *, is_spot: bool) -> str:
    code, name = _QUOTAS["p" if kind.startswith("p") else "g", is_spot]
    return f"{code} ({name})"


def _user_data(public_key: str, marker: str) -> str:
    """Return what cloud-init does at the first start: it lets the key in, and writes the marker."""
    said = base64.b64encode(f"{marker}\n".encode()).decode()
    return (
        "#cloud-config\n"
        f"ssh_authorized_keys: [{json.dumps(public_key.strip())}]\n"
        "write_files:\n"
        f"- {{path: {MARKER}, permissions: '0644', encoding: b64, content: {said}}}\n"
    )
