"""Simulated accounts: one server for each provider, which remembers what is rented there.

What Vast.ai's and RunPod's answer is checked against their documents, and so is what they are
asked; Lambda's and Paperspace's answers are as their pages describe them.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.providers.contract import Contract

KEY = "key-of-the-account"
STARTED = 1_700_000_000.0
_STATES = {
    "vast": {"running": "running", "starting": "loading", "stopped": "exited"},
    "runpod": {"running": "RUNNING", "starting": "PROVISIONING", "stopped": "EXITED"},
    "lambda": {"running": "active", "starting": "booting"},
    "paperspace": {"running": "ready", "starting": "provisioning", "stopped": "off"},
}


@dataclass
class SimulatedBox:
    """A box of an account."""

    id: str
    state: str = "running"
    address: str = "127.0.0.1"
    port: int = 22
    price: float = 0.5
    label: str | None = "mine"
    user: str = "root"


@dataclass
class SimulatedAccount:
    """What one provider's server answers from."""

    provider: str
    boxes: list[SimulatedBox] = field(default_factory=list)
    faults: list[tuple[int, object]] = field(default_factory=list)
    """Answers that come next, instead of the right ones."""
    asked: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    url: str = ""

    def environment(self) -> dict[str, str]:
        """What leads the program to this account."""
        name = self.provider.upper()
        return {f"BOXSTRAP_{name}_API": self.url, f"{name}_API_KEY": KEY}

    def answer(self, target: str) -> tuple[int, object]:
        """The status and the document of one request."""
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        words = [word for word in parts.path.split("/") if word]
        return getattr(self, f"_{self.provider}")(words, query)  # type: ignore[no-any-return]

    def _one(self, box_id: str) -> SimulatedBox | None:
        return next((box for box in self.boxes if box.id == box_id), None)

    def _vast(self, words: list[str], query: Mapping[str, str]) -> tuple[int, object]:
        if words == ["api", "v0", "users", "current"]:
            return 200, {"id": 1, "credit": 12.5, "balance": 0.0}
        if words[:3] == ["api", "v0", "instances"]:
            box = self._one(words[3])
            return 200, {"instances": _vast(box) if box else None}
        at, size = int(query.get("after_token", "0")), int(query["limit"])
        page, end = self.boxes[at : at + size], at + size
        return 200, {
            "success": True,
            "instances_found": len(page),
            "total_instances": len(self.boxes),
            "next_token": str(end) if end < len(self.boxes) else None,
            "instances": [_vast(box) for box in page],
        }

    def _runpod(self, words: list[str], query: Mapping[str, str]) -> tuple[int, object]:
        if words == ["v2", "pods"]:
            return 200, {"pods": [_runpod(box) for box in self.boxes]}
        box = self._one(words[2])
        if box is None:
            return 404, {"title": "Not Found", "status": 404, "detail": "no such pod"}
        return 200, _runpod(box)

    def _lambda(self, words: list[str], query: Mapping[str, str]) -> tuple[int, object]:
        if words == ["api", "v1", "instances"]:
            return 200, {"data": [_lambda(box) for box in self.boxes]}
        box = self._one(words[3])
        if box is None:
            return 404, {"error": {"code": "global/object-does-not-exist", "message": "none"}}
        return 200, {"data": _lambda(box)}

    def _paperspace(self, words: list[str], query: Mapping[str, str]) -> tuple[int, object]:
        if words == ["v1", "machines"]:
            at = int(query.get("after", "0"))
            more = at + 2 < len(self.boxes)
            page = [_paperspace(box) for box in self.boxes[at : at + 2]]
            return 200, {"hasMore": more, "nextPage": str(at + 2) if more else None, "items": page}
        box = self._one(words[2])
        return (200, _paperspace(box)) if box else (404, {"message": "not found"})


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
        "start_date": STARTED,
    }


def _runpod(box: SimulatedBox) -> dict[str, Any]:
    end = {"host": box.address, "port": box.port, "username": box.user, "command": "ssh …"}
    stamp = "2023-11-14T22:13:20Z"
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


class _AccountHandler(BaseHTTPRequestHandler):
    account: SimulatedAccount
    contract: Contract | None

    def do_GET(self) -> None:
        account = self.account
        account.asked.append(self.path)
        is_fault = bool(account.faults)
        if self.headers.get("Authorization") != f"Bearer {KEY}":
            status, document = 401, {"success": False, "error": "auth_error", "msg": "Invalid key"}
        elif is_fault:
            status, document = account.faults.pop(0)
        else:
            status, document = account.answer(self.path)
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        if self.contract and not is_fault and status != 401:
            headers = dict(self.headers.items())
            broken = self.contract.check("GET", self.path, headers, b"", status, body)
            account.violations += [broken] if broken else []
        self.send_response(status)
        kind = "application/problem+json" if status >= 400 else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def simulated(provider: str) -> Iterator[SimulatedAccount]:
    """An account of this provider; every exchange kept to its document, where there is one."""
    account = SimulatedAccount(provider)
    contract = Contract(provider) if provider in {"vast", "runpod"} else None
    handler = type("Handler", (_AccountHandler,), {"account": account, "contract": contract})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    account.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield account
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert account.violations == [], account.violations[0]
