"""A cloud's metadata service at its link-local address in a box, as strict as the real one.

EC2 answers nothing without a token of IMDSv2, Google Cloud and Azure nothing without their header;
Azure's events come only after a first request has switched them on.
"""

import json
import os
import secrets
import subprocess
import sys
import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from tests.boxes.box import RigBox

ADDRESS = "169.254.169.254"
VM = "homework-vm"


def notice_in(lead_s: float) -> dict[str, Any]:
    """Return what each cloud tells when it takes the box away in this many seconds."""
    at = time.time() + lead_s
    event = {
        "EventId": "A123BC45",
        "EventType": "Preempt",
        "ResourceType": "VirtualMachine",
        "Resources": [VM],
        "EventStatus": "Scheduled",
        "NotBefore": formatdate(at, usegmt=True),
    }
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    return {"action": "terminate", "time": moment, "preempted": True, "events": [event]}


class MetadataServer:
    """The service of one cloud (ec2, gcp, azure) in a live box; `state` is what it tells."""

    def __init__(self, box: RigBox, cloud: str, folder: Path) -> None:
        self._state, self._asked = folder / f"{box.name}.json", folder / f"{box.name}.asked"
        self.tell()
        inside = ["nsenter", "-t", str(box._alive()), "-n"]
        subprocess.run([*inside, "ip", "addr", "replace", f"{ADDRESS}/32", "dev", "lo"], check=True)
        with self._asked.open("wb") as asked:
            self._process = subprocess.Popen(
                [*inside, sys.executable, "-m", __name__, cloud, str(self._state)],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,  # the server ends with its parent
                stdout=asked,
            )
        while b"ready" not in self._asked.read_bytes():
            assert self._process.poll() is None
            time.sleep(0.02)

    def tell(self, **state: Any) -> float:
        """Tell this from now on; return when that was. EC2: `action` and `time`, or `rebalance`;
        Google Cloud: `preempted`; Azure: `events`; all: `broken`, an HTTP status."""
        new = self._state.with_suffix(".new")
        new.write_text(json.dumps(state))
        new.replace(self._state)
        return time.time()

    def interrupt(self, lead_s: float, **state: Any) -> float:
        """Announce the end of the box in this many seconds, as its cloud does; return when."""
        return self.tell(**{**notice_in(lead_s), **state})

    @property
    def asked(self) -> list[str]:
        """The requests so far: method, path and status."""
        return self._asked.read_text().splitlines()[1:]

    def close(self) -> None:
        """Stop the service."""
        with self._process:
            self._process.terminate()


class MetadataHandler(BaseHTTPRequestHandler):
    """Answers by `cloud` and by the file `state`."""

    cloud: str
    state: Path
    tokens: ClassVar[set[str]] = set()
    woken = 0.0

    def do_PUT(self) -> None:
        ttl = self.headers["X-aws-ec2-metadata-token-ttl-seconds"] or ""
        if self.cloud != "ec2" or self.path != "/latest/api/token":
            return self._say(404)
        if not ttl.isdigit() or not 1 <= int(ttl) <= 21600:
            return self._say(400)
        self.tokens.add(token := secrets.token_urlsafe(40))
        return self._say(200, token)

    def do_GET(self) -> None:
        told, parts = json.loads(self.state.read_text()), urlsplit(self.path)
        if told.get("broken"):
            return self._say(told["broken"])
        words = {name: values[0] for name, values in parse_qs(parts.query).items()}
        return {"ec2": self._ec2, "gcp": self._gcp, "azure": self._azure}[self.cloud](
            parts.path, words, told
        )

    def _ec2(self, path: str, _: dict[str, str], told: dict[str, Any]) -> None:
        if told.get("forget"):
            self.tokens.clear()
            self.state.write_text("{}")
        if self.headers["X-aws-ec2-metadata-token"] not in self.tokens:
            return self._say(401)
        if path == "/latest/meta-data/spot/instance-action" and "action" in told:
            return self._say(200, json.dumps({name: told[name] for name in ("action", "time")}))
        if path == "/latest/meta-data/events/recommendations/rebalance" and "rebalance" in told:
            return self._say(200, json.dumps({"noticeTime": told["rebalance"]}))
        return self._say(404)

    def _gcp(self, path: str, words: dict[str, str], told: dict[str, Any]) -> None:
        if self.headers["Metadata-Flavor"] != "Google" or self.headers["X-Forwarded-For"]:
            return self._say(403)
        if path != "/computeMetadata/v1/instance/preempted":
            return self._say(404)
        until = time.monotonic() + float(words.get("timeout_sec", 300))
        tag = self._tag(told)
        before = words.get("last_etag", tag)
        if words.get("wait_for_change") == "true":
            while tag == before and time.monotonic() < until:
                time.sleep(0.02)
                tag = self._tag(json.loads(self.state.read_text()))
        return self._say(
            200, "TRUE" if tag == "1" else "FALSE", **{"Metadata-Flavor": "Google", "ETag": tag}
        )

    @staticmethod
    def _tag(told: dict[str, Any]) -> str:
        return "1" if told.get("preempted") else "f"

    def _azure(self, path: str, words: dict[str, str], told: dict[str, Any]) -> None:
        if self.headers["Metadata"] != "true" or "api-version" not in words:
            return self._say(400)
        if path == "/metadata/instance/compute":
            return self._say(200, json.dumps({"name": VM, "location": "westus"}))
        if path != "/metadata/scheduledevents":
            return self._say(404)
        if not MetadataHandler.woken:
            time.sleep(2)  # up to two minutes in truth
            MetadataHandler.woken = time.time()
        events = told.get("events", [])
        return self._say(200, json.dumps({"DocumentIncarnation": 1, "Events": events}))

    def _say(self, status: int, text: str = "", **headers: str) -> None:
        print(self.command, self.path, status, flush=True)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Requests are printed by `_say`."""


def _serve(cloud: str, state: str) -> None:
    MetadataHandler.cloud, MetadataHandler.state = cloud, Path(state)
    server = ThreadingHTTPServer((ADDRESS, 80), MetadataHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
