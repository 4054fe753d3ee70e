"""How each provider's simulated account answers a request, and what the request changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from tests.providers.accounts import SimulatedAccount, SimulatedBox, SimulatedOffer

Answer = tuple[int, object]
_STATES = {
    "vast": {"running": "running", "starting": "loading", "stopped": "exited"},
    "runpod": {
        "running": "RUNNING",
        "starting": "PROVISIONING",
        "stopped": "EXITED",
        "offline": "ERROR",
    },
    "lambda": {"running": "active", "starting": "booting", "offline": "unhealthy"},
    "paperspace": {"running": "ready", "starting": "provisioning", "stopped": "off"},
}


def _vast_answer(
    account: SimulatedAccount, method: str, words: list[str], query: Mapping[str, str], body: Any
) -> Answer:
    match method, words[2:]:
        case "GET", ["users", "current"]:
            return 200, {"id": 1, "credit": account.credit, "balance": 0.0}
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
            return 200, {"offers": [_vast_offer(offer) for offer in account.offers]}
        case "PUT", ["asks", offer_id]:
            return _vast_bid(account, offer_id, body)
        case "GET", ["instances"]:
            return _vast_page(account, query)
        case "POST", ["instances", box_id, "ssh"]:
            if box := account.one(box_id):
                box.keys.append(body["ssh_key"])
                return 200, {"success": True, "msg": "added"}
            return 404, {"success": False, "error": "not_found", "msg": "no such instance"}
        case "GET", ["instances", box_id]:
            found = account.one(box_id)
            return 200, {"instances": _vast(found) if found else None}
        case "PUT", ["instances", box_id]:
            if box := account.one(box_id):
                box.state = "stopped"
            return (200, {"success": True}) if box else (404, {"success": False, "error": "none"})
        case "DELETE", ["instances", box_id]:
            if account.destroy(box_id):
                return 200, {"success": True, "msg": "destroyed"}
            return 404, {"success": False, "error": "no_such_instance", "msg": "none"}
    raise AssertionError(f"{method} {words}")


def _vast_page(account: SimulatedAccount, query: Mapping[str, str]) -> Answer:
    at, size = int(query.get("after_token", "0")), int(query["limit"])
    page, end = account.boxes[at : at + size], at + size
    return 200, {
        "success": True,
        "instances_found": len(page),
        "total_instances": len(account.boxes),
        "next_token": str(end) if end < len(account.boxes) else None,
        "instances": [_vast(box) for box in page],
    }


def _vast_bid(account: SimulatedAccount, offer_id: str, body: dict[str, Any]) -> Answer:
    offer = account.offer(offer_id)
    if offer is None:
        return 410, {"success": False, "error": "no_such_ask", "msg": "gone", "ask_id": 1}
    if offer.fate == "no money":
        return 400, {"success": False, "error": "insufficient_credit", "msg": "no", "ask_id": 1}
    if offer.fate == "failed bid without contract":
        return 200, {"success": False}
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
        "cuda_max_good": 12.4,
        "dph_base": offer.price,
        "dph_total": offer.price + 0.01,
        "min_bid": offer.price / 2,
        "storage_cost": 0.144,
        "disk_space": offer.disk_gb,
        "reliability2": 0.998,
        "inet_down": 840.5,
        "inet_up": 620.0,
        "geolocation": offer.region,
        "cpu_cores": None,
    }


def _runpod_answer(
    account: SimulatedAccount, method: str, words: list[str], query: Mapping[str, str], body: Any
) -> Answer:
    gone = 404, {"title": "Not Found", "status": 404, "detail": "no such pod"}
    match method, words[1:]:
        case "GET", ["catalog", "gpus"]:
            return 200, {"gpus": [_runpod_gpu(offer, query["cloud"]) for offer in account.offers]}
        case "GET", ["network-volumes"]:
            return 200, {"networkVolumes": account.volumes}
        case "GET", ["network-volumes", volume]:
            found = next((each for each in account.volumes if each["id"] == volume), None)
            return (200, found) if found else gone
        case "GET", ["pods"]:
            return 200, {"pods": [_runpod(box) for box in account.boxes]}
        case "POST", ["pods"]:
            wanted = body["gpu"]["id"], body["dataCenterIds"][0], body["cloud"]
            offer = next(
                (one for one in account.offers if (one.id, one.region, "SECURE") == wanted), None
            )
            if offer is None or offer.fate == "taken":
                return 400, {"title": "Bad Request", "status": 400, "detail": "no capacity"}
            if offer.fate == "no money":
                return 402, {"title": "Payment", "status": 402, "detail": "insufficient balance"}
            box = account.rent(offer, body["name"], body)
            box.keys.append(body["env"]["PUBLIC_KEY"])
            return 201, _runpod(box)
        case "POST", ["pods", box_id, "action"]:
            if box_ := account.one(box_id):
                box_.state = "stopped"
                return 200, _runpod(box_)
            return gone
        case "DELETE", ["pods", box_id]:
            return (204, b"") if account.destroy(box_id) else gone
        case "GET", ["pods", box_id]:
            one = account.one(box_id)
            return (200, _runpod(one)) if one else gone
    raise AssertionError(f"{method} {words}")


def _runpod_gpu(offer: SimulatedOffer, cloud: str) -> dict[str, Any]:
    level = "NONE" if offer.fate == "taken" or cloud == "COMMUNITY" else "HIGH"
    center = {"id": offer.region, "name": offer.region, "availability": level}
    return {
        **{"id": offer.id, "name": offer.gpu, "pool": None, "manufacturer": "NVIDIA"},
        **{"memory": int(offer.memory_gib), "secure": True, "community": False},
        "price": {"secure": offer.price, "community": 0.0},
        "maxCount": {"secure": 8, "community": 0},
        **({"availability": level, "dataCenters": [center]}),
    }


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
            offer = account.offer(body["instance_type_name"])
            if offer is None or not body["ssh_key_names"][0]:
                return 400, {"error": {"code": "insufficient-capacity", "message": "none left"}}
            return 200, {"data": {"instance_ids": [account.rent(offer, body["name"], body).id]}}
        case "POST", ["instance-operations", "terminate"]:
            boxes = [account.one(box_id) for box_id in body["instance_ids"]]
            told = [_lambda(each) for each in boxes if each and account.destroy(each.id)]
            return (200, {"data": {"terminated_instances": told}}) if told else gone
    raise AssertionError(f"{method} {words}")


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
    gone = 404, {"message": "not found"}
    match method, words[1:]:
        case "GET", ["machines"]:
            at = int(query.get("after", "0"))
            more = at + 2 < len(account.boxes)
            page = [_paperspace(box) for box in account.boxes[at : at + 2]]
            return 200, {"hasMore": more, "nextPage": str(at + 2) if more else None, "items": page}
        case "GET", ["machines", box_id]:
            box = account.one(box_id)
            return (200, _paperspace(box)) if box else gone
        case "PATCH", ["machines", box_id, "stop"]:
            if box_ := account.one(box_id):
                box_.state = "stopped"
                return 200, _paperspace(box_)
            return gone
        case "DELETE", ["machines", box_id]:
            return (200, {"id": box_id}) if account.destroy(box_id) else gone
    raise AssertionError(f"{method} {words}")


ANSWERS: Mapping[str, Callable[..., Answer]] = {
    "vast": _vast_answer,
    "runpod": _runpod_answer,
    "lambda": _lambda_answer,
    "paperspace": _paperspace_answer,
}


def _vast(box: SimulatedBox) -> dict[str, Any]:
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
        "start_date": box.since,
    }


def _runpod(box: SimulatedBox) -> dict[str, Any]:
    end = {"host": box.address, "port": box.port, "username": box.user, "command": "ssh …"}
    stamp = datetime.fromtimestamp(box.since, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        **{"id": box.id, "name": box.label, "status": _STATES["runpod"].get(box.state, box.state)},
        **{"actions": ["stop"], "image": "runpod/base", "args": "", "disk": 20, "mounts": {}},
        **{"ports": ["22/tcp"], "env": {}, "registry": None, "cloud": "SECURE"},
        **{"dataCenterId": None, "cudaVersion": None, "template": None, "locked": False},
        "ssh": {"proxy": None, "direct": end if box.state == "running" else None},
        "gpu": {"id": "NVIDIA RTX 4090", "count": 1},
        "cost": box.price,
        "runtime": None,
        "createdAt": stamp,
        "startedAt": stamp if box.state == "running" else None,
        "globalNetworking": {"enabled": False},
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
    return {
        "id": box.id,
        "name": box.label,
        "state": _STATES["paperspace"].get(box.state, box.state),
        "machineType": "A4000",
        "publicIp": box.address,
    }
