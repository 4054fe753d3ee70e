"""A simulated EC2: moto answers, and this adds what moto lacks.

Moto keeps no capacity, no quotas, no prices and no client tokens, and its instances run at once.
So each request is looked at before moto gets it, and moto's instances follow the account's boxes,
which have fates, a clock, and the address of a box of the rig.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import cache
from typing import TYPE_CHECKING, Any
from unittest import mock
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from bootstrap.providers.aws_api import HOME

if TYPE_CHECKING:
    from tests.providers.accounts import SimulatedAccount, SimulatedBox, SimulatedOffer

OWN_ADDRESS = "203.0.113.9"
"""From which the requests of the tests come, as AWS's own service says."""
IMAGE = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04"
_AMI = "ami-03cf127a"
_ANY_QUOTA = 1000.0
_OUR_MARK = re.compile(r"boxstrap-[0-9a-f]{12}")
_STATES = {"starting": (0, "pending"), "scheduling": (0, "pending"), "stopped": (80, "stopped")}
_IMPAIRED = ("offline", "unknown")
"""States of a box that runs, and whose checks fail."""


@cache
def _keep_descriptions() -> None:
    """Read AWS's descriptions once: each session would, and commands are forked from here."""
    import boto3
    import botocore.session

    botocore.session.create_loader = cache(botocore.session.create_loader)
    for service in ("ec2", "pricing", "service-quotas", "ssm"):
        keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
        boto3.session.Session(region_name=HOME, **keys).client(service)


_TYPES: dict[bytes, tuple[int, bytes]] = {}
"""Answers about instance types, by the request."""


def environment(url: str) -> dict[str, str]:
    """The variables of somebody whose credentials boto3 finds."""
    from tests.providers.accounts import KEY

    return {
        **{"BOXSTRAP_EC2_API": url, "AWS_ENDPOINT_URL": url, "AWS_REGION": HOME},
        **{"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": "the secret of it"},
        **{"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"},
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def new_id(number: int, _zone: str, _mark: str) -> str:
    """What the program calls an instance of its home region."""
    return str(number)


class Ec2Answers:
    """How one account answers: `(method, path, headers, body)` to status and text."""

    def __init__(self, account: SimulatedAccount) -> None:
        # A second, which each worker would take to collect the tests.
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.ec2.models import ec2_backends
        from moto.ec2.models.amis import AMIS, Ami
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.test import Client

        _keep_descriptions()
        self._account = account
        self._moto = ec2_backends[DEFAULT_ACCOUNT_ID][HOME]
        # One of its 1,300 images, which it would make anew for each account.
        os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
        self._moto.reset()
        image = next(each for each in AMIS if each["ami_id"] == _AMI)
        self._moto.amis[_AMI] = Ami(self._moto, **image)
        self.regions, self.away = {HOME}, set[str]()
        """The account's regions, and those of them that don't answer."""
        self._client = Client(DomainDispatcherApplication(create_backend_app))
        self._tokens: dict[str, tuple[bytes, bytes]] = {}
        """By client token: the request, and its answer."""

    def action(self, method: str, headers: Mapping[str, str], body: bytes) -> str:
        """What is asked for, as `RunInstances`; "" for this machine's own address."""
        if method == "GET":
            return ""
        target = headers.get("X-Amz-Target", "")
        return target.rpartition(".")[2] or self._asked(body)["Action"]

    def answer(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        """The status and the text of a request."""
        action = self.action("POST", headers, body)
        own = getattr(self, f"_{action}", None)
        if any(f"/{each}/" in headers.get("Authorization", "") for each in self.away):
            return 503, error_text("ServiceUnavailable", "The region is down")
        is_here = f"/{HOME}/" in headers.get("Authorization", "") or action == "DescribeRegions"
        if not is_here:  # nothing is in any other region
            return self._of_moto(headers, body)
        self._follow()
        answer = own(headers, body) if own else self._of_moto(headers, body)
        if action == "DescribeRegions":
            status, text = answer
            regions = re.split(rb"(?=<item>)|(?=</regionInfo>)", text)
            kept = (
                each
                for each in regions
                if b"<item>" not in each or any(one.encode() in each for one in self.regions)
            )
            return status, b"".join(kept)
        return answer  # type: ignore[no-any-return]

    def _of_moto(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:
        told = self._client.post("/", data=body, headers=dict(headers))
        return told.status_code, told.get_data()

    def _asked(self, body: bytes) -> dict[str, str]:
        return dict(parse_qsl(body.decode()))

    # What moto's instances are

    def _follow(self) -> None:
        """Make moto's instances those of the account's boxes, in their states."""
        known = {each.id: each for held in self._moto.all_reservations() for each in held.instances}
        boxes = {box.id: box for box in self._account.boxes}
        for box_id in boxes.keys() - known.keys():
            known[box_id] = self._made_by_hand(boxes[box_id])
        for instance_id, instance in known.items():
            box = boxes.get(instance_id)
            if box is None:
                if instance.state != "terminated":
                    instance.disable_api_termination = False
                    instance.terminate()
                continue
            code, state = _STATES.get(box.state, (16, "running"))
            instance._state.name, instance._state.code = state, code
            instance.launch_time = datetime.fromtimestamp(box.since, timezone.utc)
            instance.nics[0].public_ip = box.address if state == "running" else None

    def _made_by_hand(self, box: SimulatedBox) -> Any:
        tags = {"Name": box.label or ""}
        if _OUR_MARK.match(box.label or ""):
            tags["boxstrap"] = str(box.label)
        kind = box.order.get("InstanceType", "g5.xlarge")
        asked: dict[str, Any] = {"instance_type": kind, "is_instance_type_default": False}
        asked |= {"tags": {"instance": tags}, "region_name": HOME, "nics": [], "placement": ""}
        with _named(box.id):
            made = self._moto.run_instances(_AMI, 1, "", [], **asked)
        return made.instances[0]

    # What moto lacks

    def _RunInstances(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:  # noqa: N802
        account, asked = self._account, self._asked(body)
        sent = re.sub(rb"&?Signature=[^&]*|&?Timestamp=[^&]*", b"", body)
        made_before = self._tokens.get(asked["ClientToken"])
        if made_before:
            if made_before[0] != sent:
                return _refusal(400, "IdempotentParameterMismatch", "another request had it")
            return 200, made_before[1]
        zone = self._moto.get_subnet(asked["NetworkInterface.1.SubnetId"]).availability_zone
        kind = asked["InstanceType"]
        is_spot = asked.get("InstanceMarketOptions.MarketType") == "spot"
        if is_spot and asked["InstanceInitiatedShutdownBehavior"] != "terminate":
            return _refusal(400, "InvalidParameterCombination", "stop: not for one-time spot")
        offer = next((x for x in account.offers if (x.id, x.region) == (kind, zone)), None)
        code = "InsufficientInstanceCapacity"
        if offer is None or offer.fate in {"taken", "none left"}:
            return _refusal(500, code, f"We currently do not have sufficient {kind} capacity")
        if offer.fate == "no money":
            return _refusal(400, "Blocked", "This account is currently blocked")
        if offer.fate == "failed bid without contract":
            return _refusal(400, "SpotMaxPriceTooLow", "Your Spot request price is too low")
        quota = "g" if kind.startswith("g") else "p"
        running = (box.order.get("InstanceType", "") for box in account.boxes)
        used = sum(self._vcpus(each) for each in running if each.startswith(quota))
        if account.quotas.get(quota, _ANY_QUOTA) < used + self._vcpus(kind):
            code = "MaxSpotInstanceCountExceeded" if is_spot else "VcpuLimitExceeded"
            return _refusal(400, code, "You have requested more vCPU capacity than your limit")
        order = {**asked, "InstanceType": kind, "is_spot": is_spot}
        box = account.rent(offer, self._tags(asked)["boxstrap"], order)
        box.keys.append(asked["UserData"])
        with _named(box.id):
            status, text = self._of_moto(headers, body)
        assert status == 200, text
        text = text.replace(b"<name>running</name>", b"<name>pending</name>")
        self._tokens[asked["ClientToken"]] = sent, text
        return status, text

    def _tags(self, asked: Mapping[str, str]) -> dict[str, str]:
        place = "TagSpecification.1.Tag"
        numbers = [n for n in range(1, 9) if f"{place}.{n}.Key" in asked]
        return {asked[f"{place}.{n}.Key"]: asked[f"{place}.{n}.Value"] for n in numbers}

    def _vcpus(self, kind: str) -> int:
        (found,) = self._moto.describe_instance_types([kind], None)
        return int(found["VCpuInfo"]["DefaultVCpus"])

    def _one(self, body: bytes) -> SimulatedBox | None:
        return self._account.one(self._asked(body)["InstanceId.1"])

    def _TerminateInstances(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:  # noqa: N802
        box_id = self._asked(body)["InstanceId.1"]
        self._account.destroy(box_id)
        known = {each.id: each for held in self._moto.all_reservations() for each in held.instances}
        if box_id in known and known[box_id].state == "terminated":  # moto fails then, EC2 doesn't
            return 200, _document("TerminateInstances", "<instancesSet></instancesSet>")
        return self._of_moto(headers, body)

    def _StopInstances(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:  # noqa: N802
        box = self._one(body)
        if box and box.order.get("is_spot"):
            return _refusal(400, "UnsupportedOperation", "a one-time spot request")
        if box:
            self._account.set_state(box, "stopped")
        return self._of_moto(headers, body)

    def _StartInstances(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:  # noqa: N802
        box = self._one(body)
        if box and not self._account.set_state(box, "running"):
            return _refusal(500, "InsufficientInstanceCapacity", "none left")
        return self._of_moto(headers, body)

    def _DescribeInstanceStatus(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:  # noqa: N802
        status, text = self._of_moto(headers, body)
        box = self._one(body)
        if box and box.state in _IMPAIRED:
            text = text.replace(b"<status>ok</status>", b"<status>impaired</status>")
        return status, text

    def _DescribeInstanceTypes(self, headers: Mapping[str, str], body: bytes) -> tuple[int, bytes]:  # noqa: N802
        if body not in _TYPES:  # moto takes a second
            _TYPES[body] = self._of_moto(headers, body)
        return _TYPES[body]

    def _DescribeInstanceTypeOfferings(self, *_: object) -> tuple[int, bytes]:  # noqa: N802
        rows = "".join(
            f"<item><instanceType>{one.id}</instanceType><location>{one.region}</location>"
            "<locationType>availability-zone</locationType></item>"
            for one in self._account.offers
        )
        return 200, _document(
            "DescribeInstanceTypeOfferings",
            f"<instanceTypeOfferingSet>{rows}</instanceTypeOfferingSet>",
        )

    def _DescribeSpotPriceHistory(self, _: object, body: bytes) -> tuple[int, bytes]:  # noqa: N802
        asked = set(self._asked(body).values())
        rows = "".join(
            f"<item><instanceType>{one.id}</instanceType><spotPrice>{price:.6f}</spotPrice>"
            "<productDescription>Linux/UNIX</productDescription>"
            f"<timestamp>{day}T00:00:00.000Z</timestamp>"
            f"<availabilityZone>{one.region}</availabilityZone></item>"
            for one in self._account.offers
            if one.id in asked
            # The newest counts, whatever stands first.
            for day, price in (("2026-11-25", self._price(one) / 2), ("2026-11-01", 99.0))
        )
        return 200, _document(
            "DescribeSpotPriceHistory", f"<spotPriceHistorySet>{rows}</spotPriceHistorySet>"
        )

    def _price(self, offer: SimulatedOffer) -> float:
        """What a type costs: once it is rented, what its box costs."""
        for box in self._account.boxes:
            if box.order.get("InstanceType") == offer.id:
                return box.price
        return offer.price

    def _GetProducts(self, _: object, body: bytes) -> tuple[int, bytes]:  # noqa: N802
        asked = {each["Field"]: each["Value"] for each in json.loads(body)["Filters"]}
        assert asked["regionCode"] == HOME
        kind = asked["instanceType"]
        listed = [self._price(one) for one in self._account.offers if one.id == kind]
        rows = [
            json.dumps({"terms": {"OnDemand": {"x": {"priceDimensions": {"y": _row(price)}}}}})
            for price in listed[:1]
        ]
        return 200, json.dumps({"FormatVersion": "aws_v1", "PriceList": rows}).encode()

    def _GetServiceQuota(self, _: object, body: bytes) -> tuple[int, bytes]:  # noqa: N802
        code = json.loads(body)["QuotaCode"]
        family = "g" if code in {"L-DB2E81BA", "L-3819A6DF"} else "p"
        value = self._account.quotas.get(family, _ANY_QUOTA)
        return 200, json.dumps({"Quota": {"QuotaCode": code, "Value": value}}).encode()

    def _GetParameter(self, _: object, body: bytes) -> tuple[int, bytes]:  # noqa: N802
        name = json.loads(body)["Name"]
        assert name == f"{IMAGE}/latest/ami-id", name
        return 200, json.dumps({"Parameter": {"Name": name, "Value": _AMI}}).encode()


def _row(price: float) -> dict[str, object]:
    return {"unit": "Hrs", "pricePerUnit": {"USD": f"{price:.10f}"}}


def _document(action: str, inner: str) -> bytes:
    return f"<{action}Response>{inner}</{action}Response>".encode()


def _refusal(status: int, code: str, said: str) -> tuple[int, bytes]:
    return status, error_text(code, said)


def error_text(code: str, said: str) -> bytes:
    """An error as EC2 words it."""
    inner = f"<Code>{code}</Code><Message>{escape(said)}</Message>"
    return f"<Response><Errors><Error>{inner}</Error></Errors></Response>".encode()


def as_ec2(status: int, document: object, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """A fault of `accounts.FAULTS` as AWS would answer it."""
    codes = {401: "AuthFailure", 403: "UnauthorizedOperation", 429: "RequestLimitExceeded"}
    if status not in codes or not isinstance(document, dict):
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        return status, text
    if "X-Amz-Target" in headers:  # the newer form of its APIs
        code = {"RequestLimitExceeded": "ThrottlingException"}.get(codes[status], codes[status])
        return 400, json.dumps({"__type": code, "message": "slow down"}).encode()
    return {429: 503}.get(status, status), error_text(codes[status], "Slow down.")


def _named(box_id: str) -> contextlib.AbstractContextManager[object]:
    """Gives the next instance this id."""
    return mock.patch("moto.ec2.models.instances.random_instance_id", return_value=box_id)


ANSWERS = Ec2Answers
