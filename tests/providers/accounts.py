"""Simulated accounts: one HTTP server per provider, which keeps what is rented there.

Requests and answers are checked against the providers' OpenAPI documents; of Lambda's there is no
copy, and its answers follow it (`answers.py`). Where a provider was seen to answer
otherwise, so do these: docs/providers.md lists that, with the test of each. Each account has its
own clock, offers with a fate, and faults at any call.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import ThreadingHTTPServer
from importlib import import_module
from multiprocessing.sharedctypes import RawValue
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from tests.listener import QuietHandler, served
from tests.providers.contract import ERRORS, OVERLAYS, Contract

if TYPE_CHECKING:
    import pytest

KEY = "key-of-the-account"
POD_KEY = "key-of-a-pod"
"""What RunPod gives a pod: it may read and end itself, by GraphQL alone."""
EDGE = 403, b"error code: 1010"
"""What stands before RunPod's API answers to a client that it doesn't like, as text."""
STARTED = 1_700_000_000.0
LOADING_S = 60.0


class SimulatedClock:
    """The providers' time: it advances when `sleep` is called, also in a forked process."""

    def __init__(self, begin: Callable[[], float] = lambda: STARTED) -> None:
        self._begin = begin
        self._passed = RawValue("d", 0.0)

    @property
    def now(self) -> float:
        """Seconds since 1970."""
        return self._begin() + float(self._passed.value)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._passed.value += seconds


@dataclass
class SimulatedOffer:
    """One machine for rent, and what happens once it is rented."""

    id: str
    machine: str = ""
    gpu: str = "RTX 4090"
    count: int = 1
    memory_gib: float = 24
    price: float = 0.5
    billed: float | None = None
    """The price that the account reports once it is rented, if it differs."""
    region: str = "Texas, US"
    disk_gb: float = 500
    max_cuda: str = "12.8"
    """What its driver can run. On one that is older, an image never starts."""
    arch: str = "amd64"
    cloud: str = "SECURE"
    reliability: float = 0.998
    down_mbps: float = 840.5
    hours: float = 1000.0
    """Until its host's contract ends."""
    fate: str = "runs"
    """runs | stuck | dies | unknown | taken | failed bid | failed bid without contract | no money |
    never starts | none left (answered with 500) | late (a cluster whose pods come a minute later) |
    short (one whose last pod never comes)"""
    wakes: str = "runs"
    """What the first start of a box leads to that is rented without being started."""


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
    since: float = STARTED
    """When it was last started."""
    made: float = STARTED
    says: str = ""
    """What its provider says of its state."""
    ends: float | None = None
    """When its host's contract ends."""
    cluster: str = ""
    """The id of the cluster that it is of."""
    gpus: int = 1
    wakes: str = "runs"
    """What a start leads to: runs | no gpus | queued (its GPU is another's) | refused | dearer |
    broken"""
    becomes: tuple[float, str] | None = None
    """When its state changes, and to what."""
    order: dict[str, Any] = field(default_factory=dict)
    """What it was rented with."""
    keys: list[str] = field(default_factory=list)


def key_variable(provider: str) -> str:
    """The environment variable with the key of this provider."""
    return {"hf": "HF_TOKEN"}.get(provider, f"{provider.upper()}_API_KEY")


@dataclass
class SimulatedCluster:
    """A cluster of an account; its boxes name it."""

    id: str
    name: str = "made by hand"
    shape: dict[str, Any] = field(default_factory=dict)
    """The GPU's type, the GPUs of each pod, and the pods that were ordered."""
    filled: float = 0.0
    """When its pods are there."""


class CutError(Exception):
    """Closes the connection instead of answering."""


@dataclass
class SimulatedAccount:
    """The state of one provider's server."""

    provider: str
    boxes: list[SimulatedBox] = field(default_factory=list)
    faults: list[tuple[int, object]] = field(default_factory=list)
    """Status and document of the next answers, instead of the right ones."""
    faults_at: dict[int, Any] = field(default_factory=dict)
    """A key of `FAULTS`, "forbidden", or a status and a document, by the number of the request,
    counted from 0."""
    fault_on: dict[str, Any] = field(default_factory=dict)
    """The same for the next request whose method and path start with this."""
    offers: list[SimulatedOffer] = field(default_factory=list)
    volumes: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    scripts: list[dict[str, Any]] = field(default_factory=list)
    """Startup scripts."""
    quotas: dict[str, float] = field(default_factory=dict)
    """vCPUs by the first letter of EC2's types."""
    increases: list[dict[str, Any]] = field(default_factory=list)
    """Rows of what hosts ask for."""
    log: str = ""
    """The provider's own log of a box."""
    pod: str = ""
    """The id of the pod that has `POD_KEY`."""
    credit: float = 12.5
    loading_s: float = LOADING_S
    is_team: bool = False
    is_expired: bool = False
    """Whether the session of the key is over."""
    is_edgy: bool = False
    """Whether nothing gets past what stands before the API."""
    launch_every_s: float = 0.0
    """Seconds that must pass between two launches."""
    launched: float = -1e9
    clusters: list[SimulatedCluster] = field(default_factory=list)
    retry_after: str = ""
    """What "too many requests" says of when to ask again."""
    clock: SimulatedClock = field(default_factory=SimulatedClock)
    tells_time: bool = False
    """Whether its answers have that clock's date; else they have the real one."""
    address: tuple[str, int, str] = ("127.0.0.1", 22, "root")
    addresses: list[tuple[str, int, str]] = field(default_factory=list)
    """Those of the next boxes that are rented, before `address` is."""
    """Address, port and user of rented boxes."""
    rented: list[str] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    """Ids of stopped boxes that were started, once for each time."""
    destroyed: list[str] = field(default_factory=list)
    """Ids, oldest first; includes boxes that a failed bid left behind."""
    asked: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    """Method and path of each request that was not a GET."""
    violations: list[str] = field(default_factory=list)
    on_call: Callable[..., None] = lambda number, *, is_done: None
    """Called with the number of each request, before and after it is done."""
    url: str = ""
    next_id: int = 9001
    own: Any = None
    """What EC2, Google and Azure have beside boxes: the `ANSWERS` of their modules."""
    ended: list[SimulatedBox] = field(default_factory=list)
    """Jobs of Hugging Face that are over: it goes on knowing them."""
    link: str = ""
    """The Link header of the next answer."""

    def environment(self) -> dict[str, str]:
        """The variables that make the program use this account."""
        if self.own:
            return dict(_module(self.provider).environment(self.url))
        return {f"BOXSTRAP_{self.provider.upper()}_API": self.url, key_variable(self.provider): KEY}

    def answer(
        self, method: str, target: str, body: bytes, *, is_pod: bool = False
    ) -> tuple[int, object]:
        """The status and the document of one request; `is_pod`: made with a pod's own key."""
        from tests.providers.answers import ANSWERS, graphql_answer

        self.go_on()
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        words = [word for word in parts.path.split("/") if word]
        given = json.loads(body) if body and body != b"null" else None
        if self.own:
            status, document = self.own.answer(method, words, query, given)
            return status, document
        if words == ["graphql"]:
            return graphql_answer(self, given["query"], is_pod=is_pod)
        return ANSWERS[self.provider](self, method, words, query, given)

    def go_on(self) -> None:
        """Let each box become what its time has come for."""
        for box in self.boxes:
            if box.becomes and self.clock.now >= box.becomes[0]:
                box.state, box.becomes = box.becomes[1], None

    def fault_of(self, number: int, method: str, path: str) -> tuple[bool, Any] | None:
        """Take what is set for this request, as in `FAULTS`; None if there is nothing."""
        asked = f"{method} {path}"
        laid = next((each for each in self.fault_on if asked.startswith(each)), "")
        fault = self.faults_at.get(number) or self.fault_on.pop(laid, None)
        if fault == "forbidden":
            fault = 403, FORBIDDEN.get(self.provider, {})
        return (False, fault) if isinstance(fault, tuple) else FAULTS[fault] if fault else None

    def one(self, box_id: str) -> SimulatedBox | None:
        """The box with this id."""
        return next((box for box in self.boxes if box.id == box_id), None)

    def offer(self, offer_id: str) -> SimulatedOffer | None:
        """The offer with this id, unless it is taken."""
        found = next((offer for offer in self.offers if offer.id == offer_id), None)
        return found if found and found.fate != "taken" else None

    def rent(self, offer: SimulatedOffer, label: str, order: dict[str, Any]) -> SimulatedBox:
        """Rent a box of this offer; it gets the account's keys."""
        address, port, user = self.addresses.pop(0) if self.addresses else self.address
        box_id = str(self.next_id)
        if self.own:
            box_id = _module(self.provider).new_id(self.next_id, offer.region, label)
        self.next_id += 1
        ends = {
            **{"stuck": None, "dies": "offline", "failed bid": "stopped", "never starts": None},
            "unknown": "unknown",
        }.get(offer.fate, "running")
        becomes = (self.clock.now + self.loading_s, ends) if ends else None
        now, keys = self.clock.now, list(self.keys)
        price = offer.price if offer.billed is None else offer.billed
        box = SimulatedBox(box_id, "starting", address, port, price, label, user, now, now)
        if offer.fate == "never starts":
            box.says = "Error response from daemon: OCI runtime create failed: unknown"
        box.becomes, box.order, box.keys, box.wakes = becomes, order, keys, offer.wakes
        self.boxes.append(box)
        self.rented.append(box_id)
        return box

    def set_state(self, box: SimulatedBox, state: str) -> bool:
        """Stop or start it, and return whether that is done; a start is a new one, and it stays the
        box that was made once."""
        box.becomes = None
        if state == "stopped" or box.state != "stopped":
            box.state = state if state == "stopped" else box.state
            return True
        if box.wakes == "refused":
            return False
        self.started.append(box.id)
        box.since, box.state = self.clock.now, "starting"
        if box.wakes == "queued":
            box.state = "scheduling"
            return True
        ends = "unknown" if box.wakes == "broken" else "running"
        box.becomes = (self.clock.now + self.loading_s, ends)
        box.gpus = 0 if box.wakes == "no gpus" else box.gpus
        box.price *= 3 if box.wakes == "dearer" else 1
        return True

    def cluster(self, cluster_id: str) -> SimulatedCluster | None:
        """The cluster with this id; one that a test made exists as long as a box names it."""
        by_hand = SimulatedCluster(cluster_id)
        known = next((each for each in self.clusters if each.id == cluster_id), None)
        is_named = any(box.cluster == cluster_id for box in self.boxes)
        return known or (by_hand if is_named else None)

    def destroy(self, box_id: str) -> bool:
        """Destroy this box; return whether it existed."""
        box = self.one(box_id)
        if box:
            self.boxes.remove(box)
            self.destroyed.append(box_id)
        return bool(box)


def _module(provider: str) -> Any:
    return import_module(f"tests.providers.{_OWN[provider]}")


_OWN = {"ec2": "ec2_account", "gcp": "google_account", "azure": "azure_account"}
_NO_KEY = {"title": "Unauthorized", "status": 401, "detail": "Invalid key"}
REFUSED_KEYS: dict[str, tuple[int, object]] = {
    # As a live request showed; the document has 401.
    "vast": (404, {"success": False, "error": "auth_error", "msg": "Invalid user key"}),
    "runpod": (401, _NO_KEY),
    "lambda": (401, {"error": {"code": "global/invalid-api-key", "message": "Invalid key"}}),
    "paperspace": (401, {"message": "Invalid key", "code": "unauthorized"}),
    "hf": (401, {"error": "Invalid username or password."}),
    "gcp": (401, {"error": {"code": 401, "message": "Invalid Credentials"}}),
    "azure": (401, {"error": {"code": "InvalidAuthenticationToken", "message": "Invalid"}}),
}
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
FAULTS: dict[str, tuple[bool, Any]] = {
    "429": (False, (429, {"title": "x", "status": 429, "detail": "slow down"})),
    "edge": (False, EDGE),
    "500": (False, (500, {})),
    "500 after": (True, (500, {})),
    "cut": (False, CutError()),
    "cut after": (True, CutError()),
    "nonsense after": (True, (200, b"<html>")),
    "wrong types after": (
        True,
        (200, {"instances": 1, "pods": {}, "offers": "none", "new_contract": "many", "data": 3}),
    ),
}
"""Whether the request is carried out all the same, and the answer."""


FORBIDDEN = {
    "gcp": {"error": {"code": 403, "message": "compute.projects.get"}},
    "azure": {"error": {"code": "AuthorizationFailed", "message": "usages/read"}},
}
"""What is said where a permission is missing."""


class _AccountHandler(QuietHandler):
    account: SimulatedAccount
    contract: Contract | None
    lock: threading.Lock

    def serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # the client was killed
            self.close_connection = True
            return
        with self.lock:
            try:
                status, answer = self._answered(body)
            except CutError:
                self.close_connection = True
                return
        self.send_response(status)
        kind = ERRORS[self.account.provider][status >= 400]
        self.send_header("Content-Type", "text/plain" if answer == EDGE[1] else kind)
        if status == 429 and self.account.retry_after:
            self.send_header("Retry-After", self.account.retry_after)
        if self.account.link:
            self.send_header("Link", self.account.link)
            self.account.link = ""
        self.send_header("Content-Length", str(len(answer)))
        with contextlib.suppress(ConnectionError):  # the client is gone
            self.end_headers()
            self.wfile.write(answer)

    def _answered(self, body: bytes) -> tuple[int, bytes]:
        account = self.account
        if self.path == "/token":  # the server of tokens is no part of the account
            return self._told(-1, body)
        number = len(account.asked)
        is_aws = account.provider == "ec2"
        if is_aws:
            self.path = f"/{account.own.action(self.command, self.headers, body)}"
        account.asked.append(self.path)
        if self.command != "GET" and not (is_aws and self.path.startswith(("/Describe", "/Get"))):
            account.changed.append(f"{self.command} {self.path}")
        account.on_call(number, is_done=False)
        told = self._told(number, body)
        account.on_call(number, is_done=True)
        return told

    def _told(self, number: int, body: bytes) -> tuple[int, bytes]:
        account = self.account
        if account.provider == "ec2":
            return self._told_by_aws(number, body)
        is_open = account.provider == "vast" and self.path == "/api/v0/bundles/"
        is_open |= self.path.startswith("/api/retail/prices?")  # which is another server's
        document: object
        if number < 0:
            return 200, _text({"access_token": KEY, "expires_in": 3599, "token_type": "Bearer"})
        agent, key = self.headers.get("User-Agent", ""), self.headers.get("Authorization", "")
        is_pod = account.provider == "runpod" and key == f"Bearer {POD_KEY}"
        if not agent.startswith("boxstrap/"):
            account.violations.append(f"{self.path} was asked for by {agent or 'nobody'}")
        if account.is_edgy or agent.startswith("Python-urllib"):
            return EDGE
        if key and self.path.startswith("/api/retail/"):
            account.violations.append(f"{self.path} was asked for with the key")
        if self.path.startswith("/log/"):  # another server, to which the key is no business of
            if key:
                account.violations.append(f"{self.path} was asked for with the key")
            return 200 if account.log else 404, account.log.encode()
        if is_pod and self.path != "/graphql":
            status, document = 403, {"title": "Forbidden", "status": 403, "detail": "not allowed"}
        elif key != f"Bearer {KEY}" and not (is_open or is_pod):
            status, document = REFUSED_KEYS[account.provider]
        elif account.is_expired and account.provider == "vast":
            told = "Session expired. Please log in again."
            status, document = 404, {"success": False, "msg": told}
        elif account.faults:
            status, document = account.faults.pop(0)
        elif fault := account.fault_of(number, self.command, self.path):
            is_done, told = fault
            if is_done:
                account.answer(self.command, self.path, body)
            if isinstance(told, CutError):
                raise told
            status, document = told
        elif self.command == "PATCH" and self.headers.get("Content-Type") != "text/plain":
            status, document = 400, {"message": "Bad Request", "code": "bad_request"}
        else:
            status, document = account.answer(self.command, self.path, body, is_pod=is_pod)
            if "pending-price" in self.path or self.path.endswith("/logs?tail=20"):
                return status, _text(document)
            if self.path == "/graphql":  # no part of the document
                return status, _text(document)
            return status, self._checked(body, status, _text(document))
        return status, _text(document)

    def _told_by_aws(self, number: int, body: bytes) -> tuple[int, bytes]:
        from tests.providers.ec2_account import OWN_ADDRESS, as_ec2

        account, agent = self.account, self.headers.get("User-Agent", "")
        if not agent.startswith("boxstrap/"):
            account.violations.append(f"{self.path} was asked for by {agent or 'nobody'}")
        fault = account.fault_of(number, self.command, self.path)
        if account.is_edgy:
            return EDGE
        if self.path == "/" and not fault:
            return 200, OWN_ADDRESS.encode()
        if self.path != "/" and f"Credential={KEY}/" not in self.headers.get("Authorization", ""):
            return as_ec2(401, {}, self.headers)
        if account.faults:
            return as_ec2(*account.faults.pop(0), self.headers)
        account.go_on()
        is_done, told = fault or (True, None)
        if is_done and self.path != "/":
            answer: tuple[int, bytes] = account.own.answer(self.headers, body)
        if not fault:
            return answer
        if isinstance(told, CutError):
            raise told
        return as_ec2(*told, self.headers)

    def _checked(self, body: bytes, status: int, answer: bytes) -> bytes:
        if self.contract:
            headers = tuple(self.headers.items())
            exchange = (self.command, self.path, headers, body, status, answer)
            broken = self.contract.check(*exchange)
            self.account.violations += [broken] if broken else []
        return answer

    def date_time_string(self, timestamp: float | None = None) -> str:
        """An account's answers have its own time, if it tells that."""
        account = self.account
        return super().date_time_string(account.clock.now if account.tells_time else timestamp)


def _text(document: object) -> bytes:
    return document if isinstance(document, bytes) else json.dumps(document).encode()


contract_of = lru_cache(Contract)  # reading a document takes longer than most tests


@contextlib.contextmanager
def simulated(
    provider: str, *, is_held: bool = True, used_by: pytest.MonkeyPatch | None = None
) -> Iterator[SimulatedAccount]:
    """An account of this provider; every exchange is checked against its document, if it has one.

    `is_held=False` skips the check, which would take most of the time if many accounts are made.
    `used_by` sets the variables that make this process use it.
    """
    account = SimulatedAccount(provider)
    has_document = provider in OVERLAYS
    contract = contract_of(provider) if is_held and has_document else None
    account.own = _module(provider).ANSWERS(account) if provider in _OWN else None
    kept: dict[str, object] = {"account": account, "contract": contract, "lock": threading.Lock()}
    kept |= {f"do_{method}": _AccountHandler.serve for method in _METHODS}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_AccountHandler,), kept))
    account.url = f"http://127.0.0.1:{server.server_address[1]}"
    for name, value in account.environment().items() if used_by else ():
        used_by.setenv(name, value)
    with served(server):
        yield account
    assert account.violations == [], account.violations[0]
    unmet = [each for each in account.faults_at if each >= len(account.asked)]
    assert (account.faults, account.fault_on, unmet) == ([], {}, []), "faults that no request met"
