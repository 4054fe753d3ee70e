"""How a simulated Google Cloud answers: operations that end later, quotas, stock-outs after a 200.

An insert is answered with an operation, and its instance is listed as being made; what comes of it
is in the operation. Formats are those of Google's own description of the API
(`documents/gcp.json`), which each exchange is checked against; how errors look, and that the zone
is out of stock only there, is of issue threads.
"""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bootstrap.providers import digest_of

if TYPE_CHECKING:
    from tests.providers.accounts import SimulatedAccount, SimulatedBox, SimulatedOffer

PROJECT = "boxes-of-tests"
ZONE = "us-central1-a"
TOKEN = "/token"
"""Where the credentials are exchanged for the account's key."""
_HOST = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}"
_STATES = {
    **{"starting": "STAGING", "scheduling": "STAGING", "running": "RUNNING"},
    **{"stopped": "TERMINATED", "offline": "REPAIRING", "unknown": "REPAIRING"},
}
_METRICS = {"g2": "NVIDIA_L4_GPUS", "a2": "NVIDIA_A100_GPUS"}
STOCK_OUT = "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
Answer = tuple[int, object]


def new_id(number: int, zone: str = ZONE, _mark: str = "") -> str:
    """What the program calls an instance."""
    return f"{number}_{zone}_{digest_of(PROJECT)}"


@cache
def _private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


@cache
def _folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="boxstrap-google-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def environment(url: str) -> dict[str, str]:
    """The variables of a service account of this project, as its key file has it."""
    file = _folder() / f"{url.rpartition(':')[2]}.json"
    said = {
        **{"type": "service_account", "project_id": PROJECT, "private_key_id": "1"},
        **{"private_key": _private_key(), "client_id": "1", "token_uri": f"{url}{TOKEN}"},
        "client_email": f"tests@{PROJECT}.iam.gserviceaccount.com",
    }
    file.write_text(json.dumps(said))
    return {
        **{"BOXSTRAP_GCP_API": url, "GOOGLE_APPLICATION_CREDENTIALS": str(file)},
        **{"CLOUDSDK_CONFIG": str(_folder() / "none"), "GOOGLE_CLOUD_PROJECT": PROJECT},
    }


@dataclass
class GoogleAnswers:
    """What one project has beside the account's boxes."""

    account: SimulatedAccount
    operations: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Operations by the id of the request that they became."""
    disks: dict[str, dict[str, Any]] = field(default_factory=dict)
    firewalls: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    operation_s: float = 0.0
    """How long an operation goes on; the account's clock alone passes meanwhile."""
    may_not: str = ""
    """A permission that its user lacks."""
    is_down: str = ""
    """A zone that lists leave out."""

    def answer(self, method: str, words: list[str], query: Mapping[str, str], body: Any) -> Answer:
        """The status and the document of one request."""
        self._go_on()
        assert words[:3] == ["compute", "v1", "projects"], words
        if words[3] != PROJECT:
            return _error(404, "notFound", f"The resource 'projects/{words[3]}' was not found")
        account = self.account
        match method, words[4:]:
            case "GET", []:
                return 200, {"name": PROJECT, "quotas": [self._quota("GPUS_ALL_REGIONS")]}
            case "GET", ["regions"]:
                return 200, {"items": [self._region("us-central1"), self._region("us-east4")]}
            case "GET", ["aggregated", "machineTypes"]:
                return 200, self._by_zone("machineTypes", [_type(one) for one in account.offers])
            case "GET", ["aggregated", "instances"]:
                found = [self._instance(box) for box in account.boxes]
                return 200, self._by_zone("instances", [x for x in found if _fits(x, query)])
            case "GET", ["zones", zone, "instances"]:
                found = [self._instance(box) for box in account.boxes if _zone(box) == zone]
                return 200, {"items": [x for x in found if _fits(x, query)]}
            case "GET", ["aggregated", "disks"]:
                found = [disk for disk in self.disks.values() if _fits(disk, query)]
                return 200, self._by_zone("disks", found)
            case "GET", ["global", "firewalls"]:
                return 200, {"items": self.firewalls}
            case "POST", ["global", "firewalls"] if self.may_not.startswith("firewalls"):
                return _error(403, "forbidden", f"Required 'compute.{self.may_not}' permission")
            case "POST", ["global", "firewalls"]:
                self.firewalls.append({**body, "network": f"{_HOST}/{body['network']}"})
                return 200, self._operation("insert", "1", ZONE)
            case "POST", ["zones", zone, "instances"]:
                return self._insert(zone, query["requestId"], body)
            case "GET", ["zones", zone, "operations", name]:
                return 200, self.operations[name]
            case "GET", ["zones", zone, "disks", name]:
                return (200, self.disks[name]) if name in self.disks else _gone("disks", name)
            case "DELETE", ["zones", zone, "disks", name]:
                if not self.disks.pop(name, None):
                    return _gone("disks", name)
                return 200, self._operation("delete", "1", zone)
            case _, ["zones", zone, "instances", name, *rest]:
                return self._of_one(method, zone, name, rest)
        raise AssertionError(f"{method} {words}")

    def _of_one(self, method: str, zone: str, name: str, rest: list[str]) -> Answer:
        account = self.account
        box = next((each for each in account.boxes if name in {_number(each), each.label}), None)
        if box is None or zone != _zone(box):
            return _gone("instances", name)
        match method, rest:
            case "GET", []:
                return 200, self._instance(box)
            case "GET", ["serialPort"]:
                return 200, {"contents": account.log, "next": "0", "start": "0"}
            case "DELETE", []:
                account.destroy(box.id)
                self.disks.pop(box.label or "", None)  # which is deleted with it
                return 200, self._operation("delete", _number(box), zone)
            case "POST", ["stop"]:
                account.set_state(box, "stopped")
                return 200, self._operation("stop", _number(box), zone)
            case "POST", ["start"]:
                made = self._operation("start", _number(box), zone)
                if not account.set_state(box, "running"):
                    self._fails(made, STOCK_OUT, "does not have enough resources available")
                return 200, made
        raise AssertionError(f"{method} {name} {rest}")

    # Changes

    def _insert(self, zone: str, request: str, body: dict[str, Any]) -> Answer:
        account, mark = self.account, body["name"]
        if request in self.requests:
            return 200, self.requests[request]
        if any(box.label == mark for box in account.boxes):
            return _error(409, "alreadyExists", f"'{mark}' already exists")
        kind = body["machineType"].rpartition("/")[2]
        offer = next((x for x in account.offers if (x.id, x.region) == (kind, zone)), None)
        fate = offer.fate if offer else "taken"
        if self.may_not == "instances.create":
            return _error(403, "forbidden", f"Required 'compute.{self.may_not}' permission")
        if fate == "no money":
            return _error(403, "forbidden", "This API method requires billing", "BILLING_DISABLED")
        if offer is None or fate in {"taken", "none left", "failed bid without contract"}:
            number = str(account.next_id)
            made = self._operation("insert", number, zone)
            self._fails(made, STOCK_OUT, f"The zone '{zone}' does not have enough resources")
        elif metric := self._exceeded(kind):
            made = self._operation("insert", str(account.next_id), zone)
            self._fails(made, "QUOTA_EXCEEDED", f"Quota '{metric}' exceeded.  Limit: 0.0 globally.")
        else:
            order = {**body, "is_spot": body["scheduling"]["provisioningModel"] == "SPOT"}
            box = account.rent(offer, mark, {**order, "zone": zone, "kind": kind})
            keys = {each["key"]: each["value"] for each in body["metadata"]["items"]}
            box.keys.append(keys["ssh-keys"].partition(":")[2])
            made = self._operation("insert", _number(box), zone)
            self._make_disk(mark, zone, box)
            if fate == "failed bid":  # half made: an instance that is off, and its disk
                box.becomes = None
                self._fails(made, STOCK_OUT, "There are not enough resources to start it")
                box.state = "stopped"
        self.requests[request] = made
        self._go_on()
        return 200, made

    def _make_disk(self, mark: str, zone: str, box: SimulatedBox) -> None:
        asked = box.order["disks"][0]["initializeParams"]
        self.disks[mark] = {
            **{"id": f"5{_number(box)}", "name": mark, "zone": f"{_HOST}/zones/{zone}"},
            **{"sizeGb": asked["diskSizeGb"], "labels": asked["labels"]},
            "users": [f"{_HOST}/zones/{zone}/instances/{mark}"],
        }

    def _exceeded(self, kind: str) -> str:
        quotas = self.account.quotas
        names = ("GPUS_ALL_REGIONS", _METRICS.get(kind[:2], ""))
        return next((name for name in names if quotas.get(name, 1) < 1), "")

    def _operation(self, what: str, target: str, zone: str) -> dict[str, Any]:
        name = f"operation-{len(self.operations)}"
        made = {
            **{"kind": "compute#operation", "name": name, "operationType": what, "progress": 0},
            **{"targetId": target, "status": "PENDING", "zone": f"{_HOST}/zones/{zone}"},
        }
        self.operations[name] = made
        self.settings[name] = self.account.clock.now + self.operation_s
        return made

    def _fails(self, made: dict[str, Any], code: str, said: str) -> None:
        """Let an operation fail once it is over, as Google says so."""
        self.settings[made["name"], "error"] = {"errors": [{"code": code, "message": said}]}

    def _go_on(self) -> None:
        now = self.account.clock.now
        for name, made in self.operations.items():
            if made["status"] != "DONE" and now >= self.settings[name]:
                made |= {"status": "DONE", "progress": 100}
                if error := self.settings.get((name, "error")):
                    made |= {"error": error, "httpErrorStatusCode": 503}

    # What lists have

    def _by_zone(self, what: str, rows: list[dict[str, Any]]) -> dict[str, object]:
        zones: dict[str, Any] = {"zones/africa-south1-a": {"warning": {"code": "NO_RESULTS"}}}
        for row in rows:
            zone = f"zones/{row['zone'].rpartition('/')[2]}"
            zones.setdefault(zone, {}).setdefault(what, []).append(row)
        return {"items": zones, "unreachables": [self.is_down] if self.is_down else []}

    def _quota(self, metric: str) -> dict[str, object]:
        limit = self.account.quotas.get(metric, 1000)
        return {"metric": metric, "limit": limit, "usage": 0}

    def _region(self, name: str) -> dict[str, object]:
        metrics = [*_METRICS.values(), *(f"PREEMPTIBLE_{each}" for each in _METRICS.values())]
        return {"name": name, "quotas": [self._quota(each) for each in metrics]}

    def _instance(self, box: SimulatedBox) -> dict[str, Any]:
        order, zone = box.order, _zone(box)
        scheduling = {**order.get("scheduling", {"provisioningModel": "STANDARD"})}
        mark = box.label or ""
        own = {"boxstrap": mark} if mark.startswith("boxstrap-") else {}
        one: dict[str, Any] = {
            **{"kind": "compute#instance", "id": _number(box), "name": mark or "unnamed"},
            **{"zone": f"{_HOST}/zones/{zone}", "status": _STATES.get(box.state, "REPAIRING")},
            "machineType": f"{_HOST}/zones/{zone}/machineTypes/{order.get('kind', 'e2-medium')}",
            "labels": order.get("labels", own),
            "scheduling": scheduling,
            "lastStartTimestamp": _stamp(box.since),
            "creationTimestamp": _stamp(box.made),
            "disks": [{"boot": True, "autoDelete": True, "diskSizeGb": "50"}],
            "networkInterfaces": [{"network": f"{_HOST}/global/networks/default"}],
        }
        if box.says:
            one["statusMessage"] = box.says
        if one["status"] == "RUNNING":
            one["networkInterfaces"][0]["accessConfigs"] = [{"natIP": box.address}]
            if limit := scheduling.get("maxRunDuration"):
                end = _stamp(box.since + float(limit["seconds"]))
                one["resourceStatus"] = {"scheduling": {"terminationTimestamp": end}}
        return one


def _type(offer: SimulatedOffer) -> dict[str, Any]:
    return {"name": offer.id, "zone": offer.region, "guestCpus": 4, "memoryMb": 16384}


def _fits(row: Mapping[str, Any], query: Mapping[str, str]) -> bool:
    """Whether a list's filter has it, as far as these are asked for."""
    asked = query.get("filter", "")
    if asked.startswith("id="):
        return bool(row["id"] == asked[3:])
    name, _, mark = asked.removeprefix("labels.").replace(":*", "=").partition("=")
    return name in row["labels"] and (not mark or row["labels"][name] == mark)


def _number(box: SimulatedBox) -> str:
    return box.id.partition("_")[0]


def _zone(box: SimulatedBox) -> str:
    return str(box.order.get("zone", ZONE))


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def _gone(what: str, name: str) -> Answer:
    place = f"projects/{PROJECT}/zones/{ZONE}/{what}/{name}"
    return _error(404, "notFound", f"The resource '{place}' was not found")


def _error(status: int, reason: str, said: str, exact: str = "") -> Answer:
    """An error as Google's APIs word it."""
    error: dict[str, Any] = {
        **{"code": status, "message": said},
        "errors": [{"message": said, "domain": "global", "reason": reason}],
    }
    if exact:
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        error |= {"status": "PERMISSION_DENIED", "details": [{"@type": kind, "reason": exact}]}
    return status, {"error": error}


RATE_LIMIT = _error(403, "rateLimitExceeded", "Rate Limit Exceeded")


ANSWERS = GoogleAnswers
