"""How each provider's simulated account answers a request, and what the request changes."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from tests.providers.accounts import (
    SimulatedAccount,
    SimulatedBox,
    SimulatedCluster,
    SimulatedOffer,
)

Answer = tuple[int, object]
OWN_TEMPLATE = "tmine77"
"""A template that the person made, at Paperspace."""
_STATES = {
    "vast": {"running": "running", "starting": "loading", "stopped": "exited"},
    "runpod": {
        "running": "RUNNING",
        "starting": "PROVISIONING",
        "stopped": "EXITED",
        "offline": "ERROR",
        "scheduling": "STARTING",
    },
    "lambda": {"running": "active", "starting": "booting", "offline": "unhealthy"},
    "paperspace": {
        **{"running": "ready", "starting": "provisioning", "stopped": "off"},
        **{"scheduling": "starting", "offline": "off", "deleted": "off"},
    },
    "hf": {
        **{"running": "RUNNING", "starting": "SCHEDULING", "scheduling": "SCHEDULING"},
        **{"offline": "ERROR", "stopped": "COMPLETED", "deleted": "CANCELED"},
    },
}


def _vast_answer(
    account: SimulatedAccount, method: str, words: list[str], query: Mapping[str, str], body: Any
) -> Answer:
    match method, words[2:]:
        case "GET", ["users", "current"]:
            return 200, {"id": 1, "credit": account.credit, "balance": 0.0}
        case "GET", ["ssh"] if not account.keys:
            return 404, {"success": False, "msg": "No SSH keys found for the user."}
        case "GET", ["ssh"]:
            return 200, [{"id": n, "user_id": 1, "key": key} for n, key in enumerate(account.keys)]
        case "POST", ["ssh"]:
            if account.is_team:
                return 400, {"success": False, "error": "team_ssh_keys_not_supported", "msg": "no"}
            account.keys.append(body["ssh_key"])
            return 200, {"success": True, "key": {"id": 1, "user_id": 1}}
        case "GET", ["volumes"]:
            return 200, {"volumes": account.volumes}
        case "POST", ["bundles"]:
            return 200, {"offers": [_vast_offer(one) for one in account.offers if _fits(one, body)]}
        case "PUT", ["asks", offer_id]:
            return _vast_bid(account, offer_id, body)
        case "GET", ["instances"]:
            return _vast_page(account, query)
        case "GET", ["instances", "pending-price-increases"]:
            # No part of its document: as its client's tests have it.
            return 200, {"success": True, "count": 1, "pending_price_increases": account.increases}
        case "PUT", ["instances", "request_logs", box_id]:
            if account.one(box_id) is None:
                return 404, {"error": "invalid_id", "msg": "Invalid instance id."}
            return 200, {"success": True, "result_url": f"{account.url}/log/{box_id}"}
        case "POST", ["instances", box_id, "ssh"]:
            if box := account.one(box_id):
                box.keys.append(body["ssh_key"])
                return 200, {"success": True, "msg": "added"}
            return 404, {"success": False, "error": "not_found", "msg": "no such instance"}
        case "GET", ["instances", box_id]:
            found = account.one(box_id)
            return 200, {"instances": _vast(found, account.clock.now) if found else None}
        case "PUT", ["instances", box_id]:
            if box := account.one(box_id):
                return 200, {"success": account.set_state(box, body["state"])}
            return 404, {"success": False, "error": "none"}
        case "DELETE", ["instances", box_id]:
            if account.destroy(box_id):
                return 200, {"success": True, "msg": "destroyed"}
            return 404, {"success": False, "error": "no_such_instance", "msg": "none"}
    raise AssertionError(f"{method} {words}")


def _fits(offer: SimulatedOffer, body: Mapping[str, Any]) -> bool:
    """Whether a search finds it, by those filters that matter here."""
    oldest = body.get("cuda_max_good", {}).get("gte", 0)
    arch, machine = body.get("cpu_arch", {}).get("eq", offer.arch), body.get("machine_id", {})
    return (
        float(offer.max_cuda) >= oldest
        and offer.reliability >= body.get("reliability", {}).get("gte", 0)
        and offer.down_mbps >= body.get("inet_down", {}).get("gte", 0)
        and offer.hours * 3600 >= body.get("duration", {}).get("gte", 0)
        and (offer.cloud == "SECURE" or "datacenter" not in body)
        and offer.arch == arch
        and machine.get("eq", int(offer.machine or offer.id)) == int(offer.machine or offer.id)
    )


def _vast_page(account: SimulatedAccount, query: Mapping[str, str]) -> Answer:
    at, size = int(query.get("after_token", "0")), int(query["limit"])
    page, end = account.boxes[at : at + size], at + size
    return 200, {
        "success": True,
        "instances_found": len(page),
        "total_instances": len(account.boxes),
        "next_token": str(end) if end < len(account.boxes) else None,
        "instances": [_vast(box, account.clock.now) for box in page],
    }


def _vast_bid(account: SimulatedAccount, offer_id: str, body: dict[str, Any]) -> Answer:
    offer = account.offer(offer_id)
    if offer is None:
        return 410, {"success": False, "error": "no_such_ask", "msg": "gone", "ask_id": 1}
    if offer.fate == "no money":
        return 400, {"success": False, "error": "insufficient_credit", "msg": "no", "ask_id": 1}
    if offer.fate == "failed bid without contract":
        return 200, {"success": False}
    if volume := body.get("volume_info"):
        near = next((one for one in account.volumes if one["id"] == volume["volume_id"]), {})
        if near.get("machine_id") != int(offer.machine or offer.id):
            return 400, {"success": False, "error": "invalid_volume", "msg": "not on this machine"}
    box = account.rent(offer, body["label"], body)
    offer.fate = "taken"
    return 200, {"success": "stopped" not in str(box.becomes), "new_contract": int(box.id)}


def _vast_offer(offer: SimulatedOffer) -> dict[str, Any]:
    return {
        "id": int(offer.id),
        "machine_id": int(offer.machine or offer.id),
        "gpu_name": offer.gpu,
        "num_gpus": offer.count,
        "gpu_ram": offer.memory_gib * 1024,
        "cuda_max_good": float(offer.max_cuda),
        "cpu_arch": offer.arch,
        "dph_base": offer.price,
        "dph_total": offer.price + 0.01,
        "min_bid": offer.price / 2,
        "storage_cost": 0.144,
        "disk_space": offer.disk_gb,
        "hosting_type": int(offer.cloud == "SECURE"),
        "duration": offer.hours * 3600,
        "reliability2": offer.reliability,
        "inet_down": offer.down_mbps,
        "inet_up": 620.0,
        "geolocation": offer.region,
        "cpu_cores": None,
    }


def _runpod_answer(
    account: SimulatedAccount, method: str, words: list[str], query: Mapping[str, str], body: Any
) -> Answer:
    gone = 404, {"title": "Not Found", "status": 404, "detail": "no such pod"}
    match method, words[1:]:
        case "GET", ["pods", _, "logs"]:
            events = [json.dumps({"source": "system", "line": x}) for x in account.log.split("\n")]
            return 200, "".join(f"id: 1\ndata: {event}\n\n" for event in events).encode()
        case "GET", ["catalog", "gpus"]:
            return 200, {"gpus": [_runpod_gpu(offer, query) for offer in account.offers]}
        case "GET", ["network-volumes"]:
            return 200, {"networkVolumes": account.volumes}
        case "GET", ["network-volumes", volume]:
            found = next((each for each in account.volumes if each["id"] == volume), None)
            return (200, found) if found else gone
        case "GET", ["pods"]:
            shows_all = query.get("includeClusterPods") == "true"
            shown = [box for box in account.boxes if shows_all or not box.cluster]
            return 200, {"pods": [_runpod(box) for box in shown if _is_there(account, box)]}
        case "POST", ["pods"]:
            return _runpod_create(account, body)
        case method_, ["clusters", *rest]:
            return _runpod_clusters(account, method_, rest, body)
        case "POST", ["pods", box_id, "action"]:
            if (one := account.one(box_id)) and one.cluster:
                return _OF_CLUSTER
            if box_ := account.one(box_id):
                state = {"stop": "stopped", "start": "running"}[body["action"]]
                if account.set_state(box_, state):
                    return 200, _runpod(box_)
                return 400, {"title": "Bad Request", "status": 400, "detail": "no capacity"}
            return gone
        case "DELETE", ["pods", box_id]:
            one = account.one(box_id)
            if one and one.cluster:
                return _OF_CLUSTER
            return (204, b"") if account.destroy(box_id) else gone
        case "GET", ["pods", box_id]:
            one = account.one(box_id)
            return (200, _runpod(one)) if one else gone
    raise AssertionError(f"{method} {words}")


_OF_CLUSTER = 409, {"title": "Conflict", "status": 409, "detail": "pod is of a cluster"}


def _is_there(account: SimulatedAccount, box: SimulatedBox) -> bool:
    made = account.cluster(box.cluster) if box.cluster else None
    return made is None or account.clock.now >= made.filled


def _runpod_clusters(account: SimulatedAccount, method: str, words: list[str], body: Any) -> Answer:
    gone = 404, {"title": "Not Found", "status": 404, "detail": "no such cluster"}
    match method, words:
        case "GET", []:
            ids = [each.id for each in account.clusters] + [box.cluster for box in account.boxes]
            made = [account.cluster(each) for each in dict.fromkeys(ids) if each]
            return 200, {"clusters": [_runpod_cluster(account, each) for each in made if each]}
        case "POST", []:
            return _runpod_create_cluster(account, body)
        case _, [cluster_id, *rest]:
            found = account.cluster(cluster_id)
            if found is None:
                return gone
            pods = [box for box in account.boxes if box.cluster == cluster_id]
            if method == "DELETE":
                for box in pods:
                    account.destroy(box.id)
                account.clusters = [each for each in account.clusters if each is not found]
                return 204, b""
            if rest:
                return 200, {"pods": [_runpod(box) for box in pods if _is_there(account, box)]}
            return 200, _runpod_cluster(account, found)
    raise AssertionError(f"{method} {words}")


def _runpod_create_cluster(account: SimulatedAccount, body: dict[str, Any]) -> Answer:
    shape = body["compute"]
    offer = next(
        (
            one
            for one in account.offers
            if (one.id, one.cloud) == (shape["gpuTypeId"], "SECURE")
            and one.region in (body.get("dataCenterIds") or [one.region])
            and one.fate != "taken"
        ),
        None,
    )
    if offer is None:
        return 400, {"title": "Bad Request", "status": 400, "detail": "no capacity"}
    late = 60.0 if offer.fate == "late" else 0.0
    made = SimulatedCluster(f"c{account.next_id}", body["name"], shape, account.clock.now + late)
    account.clusters.append(made)
    for rank in range(shape["podCount"] - (offer.fate == "short")):
        # What its pods are called is not documented.
        box = account.rent(offer, f"{body['name']}-{rank}", body)
        box.cluster, box.gpus = made.id, shape["gpuCountPerPod"]
        box.keys.append(body["env"]["PUBLIC_KEY"])
    return 201, _runpod_cluster(account, made)


def _runpod_cluster(account: SimulatedAccount, made: SimulatedCluster) -> dict[str, Any]:
    pods = [box for box in account.boxes if box.cluster == made.id and _is_there(account, box)]
    shape = {"gpuTypeId": "NVIDIA RTX 4090", "gpuCountPerPod": 1, "podCount": max(2, len(pods))}
    return {
        **{"id": made.id, "name": made.name, "type": "TRAINING", "compute": made.shape or shape},
        "pods": {"total": len(pods), "byStatus": {}},
        "createdAt": "2026-07-01T12:00:00Z",
    }


def _runpod_create(account: SimulatedAccount, body: dict[str, Any]) -> Answer:
    none = 400, {"title": "Bad Request", "status": 400, "detail": "no capacity"}
    is_pinned, cloud = "dataCenterIds" in body, body["cloud"]
    asked = body["gpu"].get("minCudaVersion", "")
    offer = next(
        (
            one
            for one in account.offers
            if (one.id, one.cloud) == (body["gpu"]["id"], cloud)
            and (not is_pinned or one.region in body["dataCenterIds"])
            and _version(one.max_cuda) >= _version(asked)
        ),
        None,
    )
    # No data center has community machines, whatever the catalog lists; volumes aren't there.
    if cloud == "COMMUNITY" and (is_pinned or "network" in body["mounts"]):
        return none
    if offer is None or offer.fate == "taken":
        return none
    if offer.fate == "none left":
        said = "There are no instances currently available"
        return 500, {"title": "Internal Server Error", "status": 500, "detail": said}
    if offer.fate == "no money":
        return 402, {"title": "Payment", "status": 402, "detail": "insufficient balance"}
    box = account.rent(offer, body["name"], body)
    box.keys.append(body["env"]["PUBLIC_KEY"])
    if _version(offer.max_cuda) < _version("12.8"):
        box.address = ""  # its container never starts: it runs, costs, and is never reached
    return 201, _runpod(box)


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("."))) if text else ()


def _runpod_gpu(offer: SimulatedOffer, query: Mapping[str, str]) -> dict[str, Any]:
    is_old = _version(offer.max_cuda) < _version(query.get("minCudaVersion", ""))
    is_there = offer.fate != "taken" and query["cloud"] == offer.cloud and not is_old
    level = "HIGH" if is_there else "NONE"
    center = {"id": offer.region, "name": offer.region, "availability": level}
    is_secure = offer.cloud == "SECURE"
    prices = {"secure": offer.price, "community": 0.0}
    counts = {"secure": 8, "community": 0}
    if not is_secure:
        prices, counts = {"secure": 0.0, "community": offer.price}, {"secure": 0, "community": 8}
    return {
        **{"id": offer.id, "name": offer.gpu, "pool": None, "manufacturer": "NVIDIA"},
        **{"memory": int(offer.memory_gib), "secure": is_secure, "community": not is_secure},
        **{"price": prices, "maxCount": counts},
        **({"availability": level, "dataCenters": [center]}),
    }


def graphql_answer(account: SimulatedAccount, query: str, *, is_pod: bool) -> Answer:
    """RunPod's older API, by which a pod's own key may read and end this pod alone."""
    asked = re.fullmatch(
        r"(?:query|mutation)\s*\{\s*(?P<what>\w+)\(input:\s*\{podId:\s*\"(?P<id>[\w-]+)\"\}\)"
        r"\s*(?P<fields>\{[\w\s]+\})?\s*\}",
        query,
    )
    box = account.one(asked["id"]) if asked else None
    if asked is None or (is_pod and asked["id"] != account.pod):
        return 200, {"errors": [{"message": "Unauthorized"}], "data": None}
    if box is None:
        return 200, {"errors": [{"message": "pod not found"}], "data": {asked["what"]: None}}
    states = {"running": "RUNNING", "stopped": "EXITED"}
    stamp = datetime.fromtimestamp(box.since, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    told: object = None
    if asked["what"] == "podTerminate":
        account.destroy(box.id)
    elif asked["what"] in {"pod", "podStop"}:
        box.state = "stopped" if asked["what"] == "podStop" else box.state
        every = {"id": box.id, "desiredStatus": states.get(box.state, "RUNNING")}
        every |= {"costPerHr": box.price, "lastStartedAt": stamp}
        told = {name: every[name] for name in asked["fields"].strip("{}").split()}
    return 200, {"data": {asked["what"]: told}}


def _lambda_answer(
    account: SimulatedAccount, method: str, words: list[str], query: Mapping[str, str], body: Any
) -> Answer:
    gone = 404, {"error": {"code": "global/object-does-not-exist", "message": "none"}}
    match method, words[2:]:
        case "GET", ["instances"]:
            return 200, {"data": [_lambda(box) for box in account.boxes]}
        case "GET", ["instances", box_id]:
            box = account.one(box_id)
            return (200, {"data": _lambda(box)}) if box else gone
        case "GET", ["instance-types"]:
            return 200, {"data": {offer.id: _lambda_offer(offer) for offer in account.offers}}
        case "GET", ["ssh-keys"]:
            keys = enumerate(account.keys)
            told = [{"id": str(n), "name": f"key-{n}", "public_key": key} for n, key in keys]
            return 200, {"data": told}
        case "POST", ["ssh-keys"]:
            account.keys.append(body["public_key"])
            return 200, {"data": {"id": "1", **body}}
        case "GET", ["file-systems"]:
            return 200, {"data": account.volumes}
        case "POST", ["instance-operations", "launch"]:
            return _lambda_launch(account, body)
        case "POST", ["instance-operations", "terminate"]:
            boxes = [account.one(box_id) for box_id in body["instance_ids"]]
            told = [_lambda(each) for each in boxes if each and account.destroy(each.id)]
            return (200, {"data": {"terminated_instances": told}}) if told else gone
    raise AssertionError(f"{method} {words}")


def _lambda_launch(account: SimulatedAccount, body: dict[str, Any]) -> Answer:
    if account.clock.now - account.launched < account.launch_every_s:
        return 429, {"error": {"code": "global/too-many-requests", "message": "slow down"}}
    account.launched = account.clock.now
    offer = account.offer(body["instance_type_name"])
    launch = "instance-operations/launch"
    if offer is None or not body["ssh_key_names"][0]:
        return 400, {"error": {"code": f"{launch}/insufficient-capacity", "message": "none left"}}
    if offer.fate == "no money":
        return 403, {"error": {"code": "global/account-inactive", "message": "inactive"}}
    for name in body["file_system_names"]:
        near = next((one for one in account.volumes if one["name"] == name), None)
        if near is None or near["region"]["name"] != body["region_name"]:
            code = f"{launch}/file-system-in-wrong-region"
            return 400, {"error": {"code": code, "message": "another region"}}
    return 200, {"data": {"instance_ids": [account.rent(offer, body["name"], body).id]}}


def _lambda_offer(offer: SimulatedOffer) -> dict[str, Any]:
    regions = [{"name": offer.region, "description": "somewhere"}]
    return {
        "instance_type": {
            "name": offer.id,
            "description": f"{offer.count}x {offer.gpu}",
            "gpu_description": f"{offer.gpu} ({offer.memory_gib:.0f} GB SXM4)",
            "price_cents_per_hour": int(offer.price * 100),
            "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 512, "gpus": offer.count},
        },
        "regions_with_capacity_available": [] if offer.fate == "taken" else regions,
    }


def _paperspace_answer(
    account: SimulatedAccount, method: str, words: list[str], query: Mapping[str, str], body: Any
) -> Answer:
    gone = 404, {"message": "not found", "code": "not_found"}
    match method, words[1:]:
        case "GET", ["machines"]:
            return _paperspace_page([_paperspace(box) for box in account.boxes], query)
        case "GET", ["os-templates"]:
            return _paperspace_page(_paperspace_templates(account), query)
        case "GET", ["startup-scripts"]:
            return _paperspace_page(account.scripts, query)
        case "GET", ["machine-availability"]:
            return 200, {"available": _paperspace_offer(account, query) is not None}
        case "GET", ["machine-events"]:
            event = _paperspace_event("create", query["machineId"], account.log or None)
            return _paperspace_page([event] if account.log else [], query)
        case "POST", ["startup-scripts"]:
            made = {"id": f"ss{len(account.scripts)}", "name": body["name"], "description": None}
            made |= {"isEnabled": True, "isRunOnce": body["isRunOnce"], "assignedMachineIds": []}
            made |= {"dtCreated": "2026-11-25T09:00:00Z", "dtDeleted": None}
            account.scripts.append(made)
            account.keys.append(body["script"])
            return 200, made
        case "POST", ["machines"]:
            return _paperspace_create(account, body)
        case "GET", ["machines", box_id]:
            box = account.one(box_id)
            return (200, _paperspace(box)) if box else gone
        case "PATCH", ["machines", box_id, "stop" | "start" as what]:
            if (box_ := account.one(box_id)) is None:
                return gone
            if what == "start" and box_.state != "stopped":
                return 409, {"message": "the machine is not off", "code": "conflict"}
            if account.set_state(box_, {"stop": "stopped", "start": "running"}[what]):
                return 200, _paperspace_change(what, box_)
            return 409, {"message": "no capacity", "code": "out_of_capacity"}
        case "DELETE", ["machines", box_id]:
            ended = account.one(box_id)
            if ended is None:
                return gone
            account.destroy(box_id)
            return 200, _paperspace_change("deactivate", ended)
    raise AssertionError(f"{method} {words}")


def _paperspace_page(items: list[Any], query: Mapping[str, str]) -> Answer:
    at = int(query.get("after", "0"))
    more = at + 2 < len(items)
    token = str(at + 2) if more else None
    return 200, {"hasMore": more, "nextPage": token, "items": items[at : at + 2]}


def _paperspace_offer(account: SimulatedAccount, asked: Mapping[str, Any]) -> SimulatedOffer | None:
    """The offer of this type and region, if one is free."""
    wanted = asked["machineType"], asked["region"]
    free = (one for one in account.offers if one.fate != "taken")
    return next((one for one in free if (one.id, one.region) == wanted), None)


def _paperspace_create(account: SimulatedAccount, body: dict[str, Any]) -> Answer:
    offer = _paperspace_offer(account, body)
    if offer is None:
        return 400, {"message": "out of capacity", "code": "out_of_capacity"}
    if offer.fate == "no money":
        return 402, {"message": "a payment method is missing", "code": "payment_required"}
    assert body["templateId"] in {OWN_TEMPLATE, *(x["id"] for x in _paperspace_templates(account))}
    assert body["startupScriptId"] in {one["id"] for one in account.scripts}
    box = account.rent(offer, body["name"], body)
    if not body["startOnCreate"] and box.becomes and box.becomes[1] == "running":
        box.becomes = box.becomes[0], "stopped"
    return 200, _paperspace_change("create", box)


def _paperspace_templates(account: SimulatedAccount) -> list[dict[str, Any]]:
    """Templates of the types in its offers; of its own one for machine learning an older one."""
    kinds = sorted({offer.id for offer in account.offers})
    types = [{"machineTypeLabel": kind, "isAvailable": True} for kind in kinds]
    names = {
        "tplain22": ("Ubuntu 22.04", "LinuxHeadless", "2026-01-01"),
        "tml20": ("ML-in-a-Box Ubuntu 20.04", "LinuxDesktop", "2021-01-01"),
        "tml22": ("ML-in-a-Box Ubuntu 22.04", "LinuxDesktop", "2023-01-01"),
        "twin10": ("Windows 10 ML-in-a-Box", "WindowsDesktop", "2026-02-01"),
    }
    return [
        {
            **{"id": key, "name": name, "agentType": agent, "operatingSystemLabel": name[-12:]},
            **{"defaultSizeGb": 50, "availableMachineTypes": types},
            "dtCreated": f"{day}T00:00:00Z",
        }
        for key, (name, agent, day) in names.items()
    ]


def _paperspace_event(name: str, box_id: str, error: str | None) -> dict[str, Any]:
    return {
        **{"id": "e1", "name": name, "state": "error" if error else "new", "machineId": box_id},
        **{"dtCreated": "2026-11-25T09:00:00Z", "dtStarted": None, "dtFinished": None},
        "error": error,
    }


def _paperspace_change(name: str, box: SimulatedBox) -> dict[str, Any]:
    return {"event": _paperspace_event(name, box.id, None), "data": _paperspace(box)}


def _hf_answer(
    account: SimulatedAccount, method: str, words: list[str], query: Mapping[str, str], body: Any
) -> Answer:
    gone = 404, {"error": "Job not found"}
    # It goes on knowing jobs that have ended, and lists them to those who ask for no stage.
    for box in [*account.boxes]:
        if account.clock.now >= box.made + box.order.get("timeoutSeconds", 1e10):
            box.state, box.says = "offline", "Job timeout"
        if _STATES["hf"].get(box.state) in {"ERROR", "COMPLETED"}:
            account.boxes.remove(box)
            account.ended.append(box)
    match method, words[1:]:
        case "GET", ["whoami-v2"]:
            user = {"type": "user", "id": "1", "name": "me", "fullname": "Me", "isPro": True}
            return 200, {**user, "auth": {"type": "access_token"}, "avatarUrl": "/a", "orgs": []}
        case "GET", ["jobs", "hardware"]:
            return 200, [_hf_cpu(), *(_hf_offer(account, offer) for offer in account.offers)]
        case "GET", ["jobs", "me"]:
            every = account.boxes if "stage" in query else [*account.boxes, *account.ended]
            return _hf_page(account, [_hf(box) for box in every], query)
        case "POST", ["jobs", "me"]:
            offer = account.offer(body["flavor"])
            if offer is None:
                return 400, {"error": "this hardware is not available"}
            if offer.fate == "no money":
                return 402, {"error": _HF_NO_MONEY}
            return 200, _hf(account.rent(offer, body["labels"]["name"], body))
        case "GET", ["jobs", "me", _, "logs"]:
            events = [json.dumps({"timestamp": "x", "data": x}) for x in account.log.split("\n")]
            return 200, "".join(f"data: {event}\n\n" for event in events).encode()
        case "GET", ["jobs", "me", box_id]:
            known = [*account.boxes, *account.ended]
            return next(((200, _hf(box)) for box in known if box.id == box_id), gone)
        case "POST", ["jobs", "me", box_id, "cancel"]:
            return _hf_cancel(account, box_id) or gone
    raise AssertionError(f"{method} {words}")


_HF_NO_MONEY = (
    "Pre-paid credit balance is insufficient - add more credits to your account to use Jobs."
)


def _hf_cancel(account: SimulatedAccount, box_id: str) -> Answer | None:
    box = account.one(box_id)
    ended = next((each for each in account.ended if each.id == box_id), None)
    if box:
        account.destroy(box_id)
        box.state = "deleted"
        account.ended.append(box)
        return 200, _hf(box)
    if ended:
        account.destroyed += [box_id] * (box_id not in account.destroyed)
    return (200, _hf(ended)) if ended else None


def _hf_page(account: SimulatedAccount, items: list[Any], query: Mapping[str, str]) -> Answer:
    at = int(query.get("cursor", "0"))
    if at + 2 < len(items):
        stages = "stage=RUNNING&stage=SCHEDULING&" if "stage" in query else ""
        account.link = f'<{account.url}/api/jobs/me?{stages}cursor={at + 2}>; rel="next"'
    return 200, items[at : at + 2]


def _hf_cpu() -> dict[str, Any]:
    cost = {"unitCostMicroUSD": 167, "unitCostUSD": 0.000167, "unitLabel": "minute"}
    disk = {"ephemeralStorage": "50 GB", "accelerator": None}
    return {"name": "cpu-basic", "prettyName": "CPU Basic", "cpu": "2 vCPU", "ram": "16 GB"} | (
        cost | disk
    )


def _hf_offer(account: SimulatedAccount, offer: SimulatedOffer) -> dict[str, Any]:
    """A kind of hardware. What a job on it costs is said nowhere else."""
    billed = (box.price for box in account.boxes if box.order.get("flavor") == offer.id)
    price = next(billed, offer.price)
    of = {"type": "gpu", "model": offer.gpu, "quantity": str(offer.count), "manufacturer": "Nvidia"}
    vram = f"{offer.memory_gib * offer.count:.0f} GB"
    return {
        **_hf_cpu(),
        **{"name": offer.id, "prettyName": f"Nvidia {offer.gpu}", "ephemeralStorage": "110 GB"},
        "accelerator": {**of, "vram": vram},
        "unitCostMicroUSD": round(price / 60 * 1e6),
        "unitCostUSD": price / 60,
    }


def _hf(box: SimulatedBox) -> dict[str, Any]:
    made, begun = (
        datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        for at in (box.made, box.since)
    )
    stage = _STATES["hf"].get(box.state, box.state)
    owner = {"id": "5e9ecfc04957053f60648a3e", "name": "me", "type": "user", "avatarUrl": "/a"}
    has_ssh = not box.order or box.order.get("ssh", {}).get("enabled")
    way = {"sshUrl": f"ssh://{box.user}@{box.address}:{box.port}"}
    timeout = box.order.get("timeoutSeconds")
    return {
        **{"id": box.id, "createdAt": made, "type": "job", "owner": owner},
        **({"startedAt": begun} if stage == "RUNNING" else {}),
        **({"timeout": timeout} if timeout else {}),
        **{"createdBy": {"id": owner["id"], "name": "me"}, "environment": {}},
        "dockerImage": box.order.get("dockerImage", "python:3.12"),
        "flavor": box.order.get("flavor", "a10g-small"),
        "command": box.order.get("command", ["sleep", "infinity"]),
        "labels": {"name": box.label} if box.label else {},
        "status": {"stage": stage, "message": box.says or None, **(way if has_ssh else {})},
    }


ANSWERS: Mapping[str, Callable[..., Answer]] = {
    "vast": _vast_answer,
    "runpod": _runpod_answer,
    "lambda": _lambda_answer,
    "paperspace": _paperspace_answer,
    "hf": _hf_answer,
}


def _vast(box: SimulatedBox, now: float) -> dict[str, Any]:
    ports = {"22/tcp": [{"HostIp": "0.0.0.0", "HostPort": str(box.port)}]}
    return {
        "id": int(box.id),
        "label": box.label,
        "actual_status": _STATES["vast"].get(box.state, box.state),
        "cur_state": "stopped" if box.state == "stopped" else "running",
        "intended_status": "stopped" if box.state == "stopped" else "running",
        "gpu_name": "RTX 4090",
        "num_gpus": 1,
        "public_ipaddr": box.address,
        "ports": ports if box.state == "running" else None,
        "ssh_host": "ssh1.example.org",
        "ssh_port": 10600,
        "image_runtype": "ssh_direc ssh_proxy",
        "dph_total": box.price,
        "storage_total_cost": box.price / 100,
        "start_date": box.made,
        **({} if box.ends is None else {"end_date": box.ends}),
        "uptime_mins": (now - box.since) / 60 if box.state == "running" else None,
        "status_msg": box.says or None,
    }


def _runpod(box: SimulatedBox) -> dict[str, Any]:
    end = {"host": box.address, "port": box.port, "username": box.user, "command": "ssh …"}
    stamp = datetime.fromtimestamp(box.since, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        **{"id": box.id, "name": box.label, "status": _STATES["runpod"].get(box.state, box.state)},
        **{"actions": ["stop"], "image": "runpod/base", "args": "", "disk": 20},
        "mounts": box.order.get("mounts", {}),
        **{"ports": ["22/tcp"], "env": {}, "registry": None, "cloud": "SECURE"},
        **{"dataCenterId": None, "cudaVersion": None, "template": None, "locked": False},
        "ssh": {"proxy": None, "direct": end if box.state == "running" and box.address else None},
        **({"gpu": {"id": "NVIDIA RTX 4090", "count": box.gpus}} if box.gpus else {}),
        "cost": 0.0 if box.state == "stopped" else box.price,
        "runtime": None,
        "createdAt": stamp,
        "startedAt": stamp if box.state == "running" else None,
        "globalNetworking": {"enabled": False},
        **({"cluster": {"id": box.cluster, "rank": None}} if box.cluster else {}),
    }


def _lambda(box: SimulatedBox) -> dict[str, Any]:
    return {
        "id": box.id,
        "name": box.label,
        "ip": box.address if box.state == "running" else None,
        "status": _STATES["lambda"].get(box.state, box.state),
        "instance_type": {"description": "1x A100", "price_cents_per_hour": int(box.price * 100)},
    }


def _paperspace(box: SimulatedBox) -> dict[str, Any]:
    stamp = datetime.fromtimestamp(box.made, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    is_gone = box.state == "deleted"
    return {
        **{
            "id": box.id,
            "name": box.label or "",
            "os": "Ubuntu 22.04",
            "agentType": "LinuxDesktop",
        },
        "state": _STATES["paperspace"].get(box.state, box.state),
        "machineType": box.order.get("machineType", "A4000"),
        **{"cpus": 8, "ram": 48318382080, "storageTotal": 53687091200, "storageUsed": 0},
        "accelerators": [{"name": "A4000", "memory": 17179869184, "count": box.gpus}],
        **{"region": "ny2", "privateIp": None, "networkId": None, "publicIp": box.address},
        **{"publicIpType": "dynamic", "autoShutdownEnabled": False, "autoShutdownTimeout": None},
        **{"autoShutdownForce": None, "autoSnapshotEnabled": False},
        **{"autoSnapshotFrequency": None, "autoSnapshotSaveCount": None, "updatesPending": False},
        **{"restorePointEnabled": False, "restorePointFrequency": None},
        **{"restorePointSnapshotId": None, "usageRate": box.price, "storageRate": 5},
        **{"dtCreated": stamp, "dtModified": stamp, "reservation": None},
        "dtDeleted": stamp if is_gone else None,
    }
