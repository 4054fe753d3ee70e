"""A simulated subscription at Azure, for `accounts.SimulatedAccount`, and the `az` that logs in.

Requests and answers, templates included, are checked against what Azure's own Python packages say
of them (`documents/azure.json`). What these don't say, as what is told of a deployment that failed,
is of issue threads. `az` takes what it takes, and refuses anything else.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bootstrap.providers import digest_of

if TYPE_CHECKING:
    from tests.providers.accounts import SimulatedAccount, SimulatedBox, SimulatedOffer

SUBSCRIPTION = "1f2e3d4c-0000-4000-8000-00000000b0c5"
OTHER = "1f2e3d4c-0000-4000-8000-00000000b0c6"
"""A further subscription of the same login."""
REGION = "eastus"
FAMILY = "standardNCASv3_T4Family"
NO_ROOM = "AllocationFailed"
Answer = tuple[int, object]
_GROUP = re.compile("boxstrap-.*")
_NO_BODY = b""
_POWER = {
    **{"starting": "starting", "scheduling": "starting", "running": "running", "off": "stopped"},
    "stopped": "deallocated",
}
_AZ = """#!/bin/sh
# The part of az that is used here: it refuses whatever else it is given.
echo "$*" >>"$(dirname "$0")/calls"
if [ "$1 $2" != "account get-access-token" ]; then
  echo "ERROR: '$1 $2' is misspelled or not recognized by the system." >&2
  exit 2
fi
shift 2
of= form=
while [ $# -gt 0 ]; do
  case $1 in
    --subscription) of=$2; shift 2 ;;
    --output) form=$2; shift 2 ;;
    --only-show-errors) shift ;;
    *) echo "ERROR: unrecognized arguments: $1" >&2; exit 2 ;;
  esac
done
[ "$form" = json ] || { echo "ERROR: no JSON was asked for" >&2; exit 2; }
if [ -e "$AZURE_CONFIG_DIR/refused" ]; then cat "$AZURE_CONFIG_DIR/refused" >&2; exit 1; fi
grep -q "$of" "$AZURE_CONFIG_DIR/azureProfile.json" || {
  echo "ERROR: The subscription of '$of' doesn't exist in cloud 'AzureCloud'." >&2
  exit 1
}
cat "$AZURE_CONFIG_DIR/token.json"
"""


def azure_id(mark: str) -> str:
    """What the program calls a box."""
    return f"{mark.removeprefix('boxstrap-')}_{digest_of(SUBSCRIPTION)}"


def new_id(_number: int, _region: str, mark: str) -> str:
    """The same of a new one."""
    return azure_id(mark)


@cache
def _folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="boxstrap-azure-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def config_folder(url: str) -> Path:
    """Where the `az` of this account keeps its login."""
    return _folder() / url.rpartition(":")[2]


def environment(url: str, path: str = "") -> dict[str, str]:
    """The variables of somebody who is logged in at this subscription by `az`."""
    from tests.providers.accounts import KEY

    folder = config_folder(url)
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin/az").write_text(_AZ)
    (folder / "bin/az").chmod(0o755)
    both = ((OTHER, False), (SUBSCRIPTION, True))
    rows = [
        {
            **{"id": one, "name": f"sub {at}", "state": "Enabled", "isDefault": is_default},
            **{"environmentName": "AzureCloud", "tenantId": OTHER},
            "user": {"name": "me@example.org", "type": "user"},
        }
        for at, (one, is_default) in enumerate(both)
    ]
    profile = json.dumps({"installationId": "x", "subscriptions": rows})
    (folder / "azureProfile.json").write_text(profile, "utf-8-sig")  # as az writes it
    token = {
        **{"accessToken": KEY, "expires_on": int(time.time()) + 3600, "tokenType": "Bearer"},
        **{"expiresOn": "2026-11-27 03:30:00.000000", "subscription": SUBSCRIPTION},
    }
    (folder / "token.json").write_text(json.dumps(token))
    return {
        **{"BOXSTRAP_AZURE_API": url, "AZURE_CONFIG_DIR": str(folder)},
        **{"PATH": f"{folder / 'bin'}:{path or os.environ['PATH']}", "AZURE_SUBSCRIPTION_ID": ""},
    }


@dataclass
class AzureAnswers:
    """What one subscription has beside the account's boxes."""

    account: SimulatedAccount
    groups: dict[str, dict[str, Any]] = field(default_factory=dict)
    deployments: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By their group, as the only one there."""
    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)
    deployment_s: float = 0.0
    """How long a deployment goes on; the account's clock alone passes meanwhile."""
    delete_s: float = 0.0
    """How long a group stays once its machine is deleted."""
    machine_s: float = 0.0
    """How long that takes."""
    may_not: str = ""
    """An action that its user may not do."""
    is_disabled: bool = False
    is_locked: bool = False
    """Whether groups can't be deleted."""
    restricted: set[str] = field(default_factory=set)
    """Sizes that the subscription may not have."""
    page: int = 100
    """Most rows of a page of the price list, and of groups."""

    def answer(self, method: str, words: list[str], query: Mapping[str, str], body: Any) -> Answer:
        """The status and the document of one request."""
        self._go_on()
        match method, words:
            case "GET", ["api", "retail", "prices"]:
                return 200, self._prices(query)
            case _, ["subscriptions", other, *_] if other != SUBSCRIPTION:
                return _error(
                    404, "SubscriptionNotFound", f"The subscription '{other}' is not found"
                )
            case "GET", [_, _, "resourcegroups"]:
                return 200, self._listed(query)
            case "GET", [_, _, "providers", "Microsoft.Compute", "skus"]:
                return 200, {"value": [*self._skus(query["$filter"].split("'")[1])]}
            case "GET", [_, _, "providers", "Microsoft.Compute", "locations", region, "usages"]:
                return 200, {"value": self._usages(region)}
            case _, [_, _, "resourcegroups", name]:
                return self._of_group(method, name, query, body)
            case _, [_, _, "resourceGroups", name, "providers", *rest]:
                return self._inside(method, name, rest, body)
        raise AssertionError(f"{method} {words}")

    # Groups

    def group(self, name: str) -> dict[str, Any] | None:
        """A group that was made here, or that a box of somebody else is in."""
        if name in self.groups:
            return self.groups[name]
        box = next((each for each in self.account.boxes if each.label == name), None)
        if box is None or not _GROUP.fullmatch(name):
            return None
        return {"location": REGION, "tags": box.order.get("tags", {"boxstrap": name})}

    def _listed(self, query: Mapping[str, str]) -> dict[str, Any]:
        assert query["$filter"] == "tagName eq 'boxstrap'"
        own = [str(box.label) for box in self.account.boxes if _GROUP.fullmatch(str(box.label))]
        names = [name for name in dict.fromkeys([*own, *self.groups]) if self._has_tag(name)]
        at = int(query.get("$skiptoken", "0"))
        found: dict[str, Any] = {"value": [self._group(name) for name in names[at:][: self.page]]}
        if names[at + self.page :]:
            link = f"https://management.azure.com/subscriptions/{SUBSCRIPTION}/resourcegroups"
            asked = "api-version=2022-09-01&$filter=tagName eq 'boxstrap'".replace(" ", "%20")
            found["nextLink"] = f"{link}?{asked}&$skiptoken={at + self.page}"
        return found

    def _has_tag(self, name: str) -> bool:
        found = self.group(name)
        return bool(found and "boxstrap" in found["tags"])

    def _group(self, name: str) -> dict[str, Any]:
        found = self.group(name) or {}
        state = "Deleting" if "gone" in found else "Succeeded"
        return {
            **{"id": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{name}", "name": name},
            **{"type": "Microsoft.Resources/resourceGroups", "location": found["location"]},
            **{"tags": found["tags"], "properties": {"provisioningState": state}},
        }

    def _of_group(self, method: str, name: str, query: Mapping[str, str], body: Any) -> Answer:
        found = self.group(name)
        if method == "PUT":
            if refusal := self._refusal("resourceGroups/write"):
                return refusal
            if found and "gone" in found:
                return _error(
                    409, "ResourceGroupBeingDeleted", f"'{name}' is in deprovisioning state"
                )
            self.groups[name] = {**(found or {}), **body}
            return (200 if found else 201), self._group(name)
        if found is None:
            return _gone("ResourceGroupNotFound", f"Resource group '{name}' could not be found.")
        if method == "GET":
            return 200, self._group(name)
        assert query.get("forceDeletionTypes"), "its machine would be paid for until it is off"
        if refusal := self._refusal("resourceGroups/delete"):
            return refusal
        if self.is_locked:
            return _error(409, "ScopeLocked", f"The scope '{name}' cannot perform delete: a lock")
        if "gone" not in found:
            now = self.account.clock.now
            self.groups[name] = {**found, "gone": now + self.delete_s}
            self.groups[name]["off"] = now + self.machine_s
        self._go_on()
        return 202, _NO_BODY

    def _refusal(self, action: str) -> Answer | None:
        if self.is_disabled:
            said = (
                f"The subscription '{SUBSCRIPTION}' is disabled and therefore marked as read only."
            )
            return _error(409, "ReadOnlyDisabledSubscription", said)
        if self.may_not == action:
            said = f"does not have authorization to perform action 'Microsoft.Resources/{action}'"
            return _error(403, "AuthorizationFailed", f"The client 'me' {said}")
        return None

    def _go_on(self) -> None:
        """Let pass what passes by itself: deletions, and Azure's own schedule."""
        now = self.account.clock.now
        for name, group in [*self.groups.items()]:
            if now >= group.get("off", now + 1):
                for box in [each for each in self.account.boxes if each.label == name]:
                    self.account.destroy(box.id)
                del group["off"]
            if now >= group.get("gone", now + 1) and "off" not in group:
                for kept in (self.groups, self.deployments, self.schedules):
                    kept.pop(name, None)
        for box in self.account.boxes:
            plan = self.schedules.get(str(box.label))
            if plan and self.account.tells_time and box.state in {"running", "off"}:
                daily = plan["properties"]["dailyRecurrence"]["time"]
                if now >= _next(daily, max(box.since, plan["set"])):
                    box.state, box.becomes = "stopped", None

    def half_made(self) -> Iterator[str]:
        """Groups that stay, and in which not all was made."""
        self._go_on()
        for name, group in self.groups.items():
            made = self.deployments.get(name)
            if "gone" not in group and (made is None or made["error"]):
                yield name

    # What is in a group

    def _inside(self, method: str, name: str, rest: list[str], body: Any) -> Answer:
        if self.group(name) is None:
            return _gone("ResourceGroupNotFound", f"Resource group '{name}' could not be found.")
        box = next((each for each in self.account.boxes if each.label == name), None)
        match method, rest:
            case "PUT", ["Microsoft.Resources", "deployments", _]:
                return self._deploy(name, body["properties"]["template"])
            case "GET", ["Microsoft.Resources", "deployments", _] if name in self.deployments:
                return 200, self._deployment(name)
            case "GET", ["Microsoft.Resources", "deployments", what]:
                return _gone("DeploymentNotFound", f"Deployment '{what}' could not be found.")
            case "PUT", ["Microsoft.DevTestLab", "schedules", _]:
                self.schedules[name] = {**body, "set": self.account.clock.now}
                return 200, body
            case "GET", ["Microsoft.DevTestLab", "schedules", _] if name in self.schedules:
                return 200, {key: x for key, x in self.schedules[name].items() if key != "set"}
            case "GET", ["Microsoft.Network", "publicIPAddresses", _] if box:
                properties = {"publicIPAllocationMethod": "Static", "ipAddress": box.address}
                return 200, {"name": "box", "location": REGION, "properties": properties}
            case _, ["Microsoft.Compute", "virtualMachines", _, *action] if box:
                return self._of_machine(method, box, action)
        return _gone("ResourceNotFound", f"The Resource '{'/'.join(rest)}' was not found.")

    def _of_machine(self, method: str, box: SimulatedBox, action: list[str]) -> Answer:
        match method, action:
            case "GET", []:
                return 200, self._machine(box)
            case "POST", ["deallocate"]:
                self.account.set_state(box, "stopped")
                return 202, _NO_BODY
            case "POST", ["start"]:
                box.state = "stopped" if box.state == "off" else box.state
                is_on = self.account.set_state(box, "running")
                box.says = "" if is_on else NO_ROOM  # which is said a while after the answer
                return 202, _NO_BODY
        raise AssertionError(f"{method} {action}")

    def _deploy(self, name: str, template: Mapping[str, Any]) -> Answer:
        account, group = self.account, self.groups.get(name, {})
        if refusal := self._refusal("deployments/write"):
            return refusal
        if "gone" in group:
            return _error(409, "ResourceGroupBeingDeleted", f"'{name}' is in deprovisioning state")
        known = self.deployments.get(name)
        if known and account.clock.now < known["over"]:
            return _error(409, "DeploymentActive", f"The deployment in '{name}' is still active")
        if known:
            return 200, self._deployment(name)
        made = {each["type"].rpartition("/")[2]: each for each in template["resources"]}
        _check_template(name, template["resources"])
        machine = made["virtualMachines"]["properties"]
        size, region = machine["hardwareProfile"]["vmSize"], made["virtualMachines"]["location"]
        offer = next((x for x in account.offers if (x.id, x.region) == (size, region)), None)
        fate = offer.fate if offer and size not in self.restricted else "taken"
        if fate == "no money":
            self.is_disabled, refusal = True, None
            refusal = self._refusal("")
            self.is_disabled = False
            assert refusal
            return refusal
        if offer is None or fate == "taken":
            said = f"The requested VM size for resource '{size}' is currently not available"
            return _invalid("SkuNotAvailable", f"{said} in location '{region}'.")
        if over := self._exceeded(is_spot=machine["priority"] == "Spot"):
            said = f"Operation could not be completed as it results in exceeding approved {over}"
            return _invalid(
                "QuotaExceeded", f"{said} quota. Current Limit: 0, Additional Required: 4"
            )
        error: object = None
        if fate == "none left":
            error = _failed(
                "Conflict", NO_ROOM, "Allocation failed. We do not have sufficient capacity"
            )
        elif fate == "failed bid without contract":
            error = _failed("Conflict", "ZonalAllocationFailed", "Allocation failed in the zone")
        else:
            order = {**machine, "is_spot": machine["priority"] == "Spot", "kind": size}
            box = account.rent(offer, name, {**order, "region": region})
            keys = machine["osProfile"]["linuxConfiguration"]["ssh"]["publicKeys"]
            box.keys += [each["keyData"] for each in keys]
            if "schedules" in made:
                plan = {key: made["schedules"][key] for key in ("location", "properties")}
                self.schedules[name] = {**plan, "set": account.clock.now}
            if (
                fate == "failed bid"
            ):  # half made: a machine that never was on, its disk, its address
                box.becomes, box.state, box.says = None, "failed", NO_ROOM
                error = _failed("Conflict", NO_ROOM, "Allocation failed.")
        over_at = account.clock.now + self.deployment_s
        self.deployments[name] = {"over": over_at, "error": error, "template": template}
        return 201, self._deployment(name, is_new=True)

    def _exceeded(self, *, is_spot: bool) -> str:
        quotas = self.account.quotas
        names = ("lowPriorityCores",) if is_spot else (FAMILY, "cores")
        return next((name for name in names if quotas.get(name, 100) < 4), "")

    def _deployment(self, name: str, *, is_new: bool = False) -> dict[str, Any]:
        made = self.deployments[name]
        goes_on = self.account.clock.now < made["over"]
        state = "Failed" if made["error"] else "Succeeded"
        properties = {"provisioningState": state, "mode": "Incremental"}
        if goes_on:
            properties["provisioningState"] = "Accepted" if is_new else "Running"
        elif made["error"]:
            properties["error"] = made["error"]
        return {"name": "box", "properties": properties}

    def _machine(self, box: SimulatedBox) -> dict[str, Any]:
        order = box.order
        making = {"starting": "Creating", "failed": "Failed", "offline": "Failed"}
        state = making.get(box.state, "Succeeded")
        code = (
            "failed/" + (box.says or "InternalOperationError")
            if state == "Failed"
            else state.lower()
        )
        statuses = [
            {"code": f"ProvisioningState/{code}", "level": "Info", "time": _stamp(box.since)}
        ]
        if box.state == "stopped" and box.says:
            statuses[0] |= {"code": f"ProvisioningState/failed/{box.says}", "level": "Error"}
            statuses[0] |= {"message": "Allocation failed. Try again later"}
        if power := _POWER.get(box.state):
            statuses.append({"code": f"PowerState/{power}", "level": "Info"})
        kind = order.get("kind", "Standard_NC4as_T4_v3")
        return {
            **{"name": "box", "location": order.get("region", REGION)},
            "type": "Microsoft.Compute/virtualMachines",
            "properties": {
                **{"vmId": OTHER, "hardwareProfile": {"vmSize": kind}},
                "storageProfile": {"osDisk": {"createOption": "FromImage", "diskSizeGB": 64}},
                **{"provisioningState": state, "timeCreated": _stamp(box.made)},
                "priority": "Spot" if order.get("is_spot") else "Regular",
                "instanceView": {"statuses": statuses},
            },
        }

    # What is for rent

    def _skus(self, region: str) -> Iterator[dict[str, Any]]:
        yield {"resourceType": "disks", "name": "Premium_LRS", "locations": [region]}
        for offer in self.account.offers:
            if offer.region == region:
                told = {"vCPUs": "4", "GPUs": str(offer.count), "LowPriorityCapable": "True"}
                own = {"type": "Location", "values": [region]}
                own |= {"reasonCode": "NotAvailableForSubscription"}
                yield {
                    **{"resourceType": "virtualMachines", "name": offer.id, "family": FAMILY},
                    "locations": [region],
                    "capabilities": [{"name": key, "value": x} for key, x in told.items()],
                    "restrictions": [own] if offer.id in self.restricted else [],
                }

    def _usages(self, region: str) -> Answer | list[dict[str, Any]]:
        limits = {name: self.account.quotas.get(name, 100) for name in _QUOTAS}
        return [
            {"unit": "Count", "limit": int(limit), "currentValue": 0, "name": {"value": name}}
            for name, limit in limits.items()
        ]

    def _prices(self, query: Mapping[str, str]) -> dict[str, Any]:
        wanted = query["$filter"]
        sizes = re.findall("armSkuName eq '([^']+)'", wanted)
        (region,) = re.findall("armRegionName eq '([^']+)'", wanted) or [""]
        rows = [
            row
            for offer in self.account.offers
            if offer.id in sizes and region in {"", offer.region}
            for row in _price_rows(offer)
        ]
        at = int(query.get("$skip", "0"))
        found: dict[str, Any] = {"BillingCurrency": "USD", "Items": rows[at:][: self.page]}
        found |= {"NextPageLink": None, "Count": len(found["Items"])}
        if rows[at + self.page :]:
            more = f"api-version={query['api-version']}&$filter={wanted}&$skip={at + self.page}"
            link = "https://prices.azure.com:443/api/retail/prices?"
            found["NextPageLink"] = link + more.replace(" ", "%20")
        return found


_QUOTAS = ("cores", "lowPriorityCores", FAMILY)


def _price_rows(offer: SimulatedOffer) -> Iterator[dict[str, Any]]:
    """Rows of the price list, some of which are of something else: dearer, so that it shows."""
    for product, suffix, price in (
        ("Virtual Machines NCasT4_v3 Series Windows", "", offer.price * 1.8),
        ("NCasT4_v3 Series Cloud Services", "", offer.price * 1.1),
        ("Virtual Machines NCasT4_v3 Series", " Low Priority", offer.price * 1.2),
        ("Virtual Machines NCasT4_v3 Series", " Spot", offer.price * 0.4),
        ("Virtual Machines NCasT4_v3 Series", "", offer.price),
    ):
        yield {
            **{
                "currencyCode": "USD",
                "retailPrice": round(price, 6),
                "armRegionName": offer.region,
            },
            **{"meterName": f"NC{suffix}", "skuName": f"NC{suffix}", "productName": product},
            **{"serviceName": "Virtual Machines", "unitOfMeasure": "1 Hour", "type": "Consumption"},
            "armSkuName": offer.id,
        }


def _check_template(group: str, resources: list[dict[str, Any]]) -> None:
    """Check what Azure does of a template: each resource is made after those that it names."""
    place = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers"
    made = [f"{place}/{each['type']}/{each['name']}" for each in resources]
    assert len(set(made)) == len(made)
    for at, each in enumerate(resources):
        assert set(each["dependsOn"]) <= set(made), each
        named = {x.partition("/subnets/")[0] for x in _texts(each) if x.startswith(place)}
        assert named <= {*each["dependsOn"], *made[:at]}, each
        assert not [x for x in _texts(each) if x.startswith("[")], "it would be evaluated"


def _texts(node: object) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _texts(each)


def _next(daily: str, after: float) -> float:
    """When a daily time comes next."""
    moment = int(daily[:2]) * 3600 + int(daily[2:]) * 60
    today = after - after % 86400 + moment
    return today if today > after else today + 86400


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.0000001+00:00")


def _error(status: int, code: str, said: str) -> Answer:
    return status, {"error": {"code": code, "message": said}}


def _gone(code: str, said: str) -> Answer:
    return _error(404, code, said)


def _invalid(code: str, said: str) -> Answer:
    """What Azure says of a template that it doesn't even begin."""
    error = {"code": "InvalidTemplateDeployment", "message": "See inner errors for details."}
    return 400, {"error": {**error, "details": [{"code": code, "message": said}]}}


def _failed(wrapper: str, code: str, said: str) -> dict[str, Any]:
    """What it says of a deployment that failed: the reason is text within text."""
    error = {"code": "ResourceDeploymentFailure", "message": "Failed."}
    details = [{"code": code, "message": said}]
    inner = {"status": "Failed", "error": {**error, "details": details}}
    return {
        **{"code": "DeploymentFailed", "message": "At least one resource deployment failed."},
        "details": [{"code": wrapper, "message": json.dumps(inner, indent=2)}],
    }


ANSWERS = AzureAnswers
