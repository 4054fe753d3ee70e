"""How a box ends itself: by requests that its own key allows, or by shutting itself down.

Vast.ai and RunPod give each box a key, to read this box, stop it, destroy it. It is read each time
from where the provider put it, and stored nowhere. EC2 and Google Cloud end an instance that shuts
itself down.
Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from .. import AGENT
from ..run_folder import end_of
from .rules import AccountReading

TIMEOUT_S = 15
_MOST = 1 << 20
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_LINE = re.compile(r"^(?:export )?([A-Z_]+)=[\"']?([^\"'\n]*)[\"']?$", re.MULTILINE)
_LOOPBACK = re.compile(r"http://127\.0\.0\.1:[0-9]{1,5}")
_ENVIRONMENTS = ("/proc/1/environ", "/etc/environment", "/etc/rp_environment")
_REFUSALS = frozenset({401, 403, 404})
_GRAPHQL = "graphql"


class KeyRefusedError(Exception):
    """The account refuses the box's key, or the request that was made with it."""


class NoAnswerError(Exception):
    """The account can't be reached, or its answer is unusable."""


class InstanceApi(NamedTuple):
    """One provider's API for a box's requests about itself."""

    id: str
    """The environment variable with the box's id."""
    key: str
    address: str
    read: tuple[str, str, dict[str, str] | None]
    stop: tuple[str, str, dict[str, str] | None]
    destroy: tuple[str, str, dict[str, str] | None]
    word: Callable[[dict[str, Any], float], tuple[float | None, float | None]]
    """Reads an answer, and when it came: when the box was started, and dollars an hour."""
    volume: str = ""
    """Where the only volume that survives a stop is mounted; "" if everything survives."""
    older: dict[str, str] = {}  # noqa: RUF012 - never changed
    """GraphQL for read, stop and destroy, if the box's key may do these only in an older API."""
    of_cluster: str = ""
    """The environment variable of a box in a cluster, which can't be ended without the others."""


def _vast(answer: dict[str, Any], now: float) -> tuple[float | None, float | None]:
    one = answer.get("instances")
    if not isinstance(one, dict):
        raise NoAnswerError("the account has no such box")
    # `start_date` is when it was first made, however often it was stopped since.
    minutes = _number(one.get("uptime_mins"))
    return None if minutes is None else now - minutes * 60, _number(one.get("dph_total"))


def _runpod(answer: dict[str, Any], _: float) -> tuple[float | None, float | None]:
    try:
        stamp = str(answer.get("startedAt") or answer["lastStartedAt"]).replace("Z", "+00:00")
        started = datetime.fromisoformat(stamp).timestamp()
    except (KeyError, ValueError):
        started = None
    return started, _number(answer.get("cost", answer.get("costPerHr")))


def _number(value: object) -> float | None:
    is_one = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_one and 0 <= value < 1e12 else None  # type: ignore[operator,arg-type]


_OF_VAST, _OF_RUNPOD = "/api/v0/instances/{id}/", "/v2/pods/{id}"
APIS = {
    "vast": InstanceApi(
        id="CONTAINER_ID",
        key="CONTAINER_API_KEY",
        address="https://console.vast.ai",
        read=("GET", _OF_VAST, None),
        stop=("PUT", _OF_VAST, {"state": "stopped"}),
        destroy=("DELETE", _OF_VAST, None),
        word=_vast,
    ),
    "runpod": InstanceApi(
        id="RUNPOD_POD_ID",
        key="RUNPOD_API_KEY",
        address="https://api.runpod.io",
        read=("GET", _OF_RUNPOD, None),
        stop=("POST", f"{_OF_RUNPOD}/action", {"action": "stop"}),
        destroy=("DELETE", _OF_RUNPOD, None),
        word=_runpod,
        volume="/workspace",
        # To be switched off in early 2027. Version 1 was seen to refuse the key of a pod.
        older={
            "read": 'query { pod(input: {podId: "ID"}) { id costPerHr lastStartedAt } }',
            "stop": 'mutation { podStop(input: {podId: "ID"}) { id desiredStatus } }',
            "destroy": 'mutation { podTerminate(input: {podId: "ID"}) }',
        },
        of_cluster="HOST_NODE_ADDR",
    ),
}


HOLD = frozenset({*APIS, "ec2", "gcp"})
"""Providers whose boxes can end themselves."""
MARKERS = ("/etc/boxstrap-shutdown", "/etc/boxstrap-gcp")
"""Written when such a box is rented: its provider, what a shutdown does, dollars an hour."""
_MARKED = re.compile(r"(ec2|gcp) (stop|terminate) ([0-9]{1,6}(?:[.][0-9]{1,6})?)\s*")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow no redirect: the key goes to the account, and nowhere else."""


class OwnInstance:
    """This box, in the account that pays for it."""

    def __init__(self, provider: str, id_: str, key: str) -> None:
        self.provider = provider
        self._api, self._id, self._key = APIS[provider], id_, key
        simulated = os.environ.get(f"BOXSTRAP_{provider.upper()}_API", "")
        self._address = simulated if _LOOPBACK.fullmatch(simulated) else self._api.address
        self._opener = urllib.request.build_opener(_NoRedirect)
        self.way = ""
        """By which API it was last reached: "" for the provider's own one, or `graphql`."""

    def ask(self) -> AccountReading:
        """Ask the account about this box. Raises KeyRefusedError, NoAnswerError."""
        answer, date = self._do("read", self._api.read)
        if answer.get("cluster"):
            raise KeyRefusedError("its account ends it with its whole cluster alone")
        try:
            now = parsedate_to_datetime(date or "").timestamp()
        except (TypeError, ValueError, OverflowError):
            raise NoAnswerError("the account's answer has no date") from None
        return AccountReading(now, *self._api.word(answer, now))

    def stop(self) -> None:
        """Raises as `ask`, and so does `destroy`."""
        self._do("stop", self._api.stop)

    def destroy(self) -> None:
        self._do("destroy", self._api.destroy)

    def keeps(self, places: Iterable[str], workdir: str) -> bool:
        """Return whether a stop keeps all these places. The working folder may be a volume too."""
        if not self._api.volume:
            return True
        volumes = tuple(f"{one}/" for one in (self._api.volume, workdir) if os.path.ismount(one))
        return all(f"{os.path.realpath(place)}/".startswith(volumes) for place in places)

    def _do(
        self, what: str, request: tuple[str, str, dict[str, str] | None]
    ) -> tuple[dict[str, Any], str | None]:
        """Send a request; by the older API, if the key is refused by the newer one."""
        if not self.way:
            try:
                return self._send(*request)
            except KeyRefusedError:
                if what not in self._api.older:
                    raise
        query = {"query": self._api.older[what].replace("ID", self._id)}
        answer, date = self._send("POST", "/graphql", query)
        errors = answer.get("errors")
        if errors:
            first = errors[0] if isinstance(errors, list) else None
            said = str(first.get("message") if isinstance(first, dict) else errors)[:100]
            if re.search("unauthorized|not authorized|forbidden|permission", said.lower()):
                raise KeyRefusedError(f"its account answers: {said}")
            raise NoAnswerError(f"its account answers: {said}")
        data = answer.get("data")
        found = next(iter(data.values()), None) if isinstance(data, dict) else None
        if what == "read" and not isinstance(found, dict):
            raise NoAnswerError("the account has no such box")
        self.way = _GRAPHQL
        return (found if isinstance(found, dict) else {}), date

    def _send(
        self, method: str, path: str, body: dict[str, str] | None
    ) -> tuple[dict[str, Any], str | None]:
        request = urllib.request.Request(  # noqa: S310 - of the table above
            self._address + path.format(id=self._id),
            data=json.dumps(body).encode() if body else None,
            method=method,
            headers={
                "Authorization": f"Bearer {self._key}",
                "Content-Type": "application/json",
                **AGENT,
            },
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                said, date = answer.read(_MOST), answer.headers.get("Date")
        except urllib.error.HTTPError as error:
            raise _refusal(error) from None
        except (OSError, HTTPException, ValueError) as error:
            raise NoAnswerError(f"its account can't be asked ({type(error).__name__})") from None
        found = _document(said or b"{}")
        return (found if isinstance(found, dict) else {}), date


class ShutdownInstance:
    """This box, whose provider stops or ends it when it shuts itself down: no key is needed."""

    def __init__(self, provider: str, does: str, price: float) -> None:
        self.provider, self.way = provider, does
        """`way`: what a shutdown does, `stop` or `terminate`."""
        self._price = price
        is_root = os.geteuid() == 0
        self._sudo = () if is_root else ("sudo", "-n")

    def ask(self) -> AccountReading:
        """Return what is known here, as an account would say it: it is not paid for while off."""
        if self._sudo:
            self._run("true")
        now = time.time()
        return AccountReading(now, now - time.clock_gettime(time.CLOCK_BOOTTIME), self._price)

    def stop(self) -> None:
        """Raises as `OwnInstance.ask`."""
        self._run("shutdown", "-h", "now")

    destroy = stop

    def keeps(self, places: Iterable[str], workdir: str) -> bool:  # noqa: ARG002 - as OwnInstance
        return self.way == "stop"

    def _run(self, *command: str) -> None:
        try:
            done = subprocess.run(
                [*self._sudo, *command],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoAnswerError(f"{command[0]} can't be run ({type(error).__name__})") from None
        if done.returncode and self._sudo:
            raise KeyRefusedError(f"sudo refuses {command[0]} ({done.returncode})")
        if done.returncode:
            raise NoAnswerError(f"{command[0]} fails ({done.returncode})")


def _refusal(error: urllib.error.HTTPError) -> Exception:
    """Return what an error's status means; what isn't the API's own answer says nothing of the
    key: it comes from what stands before the API."""
    try:
        with error:
            said = _document(error.read(_MOST))
    except (OSError, HTTPException, ValueError):
        said = None
    if error.code not in _REFUSALS:
        return NoAnswerError(f"its account answers with {error.code}")
    if error.code != 401 and not isinstance(said, dict):
        return NoAnswerError(f"what stands before its account turned this away ({error.code})")
    return KeyRefusedError(f"its account answers with {error.code}")


def _document(text: bytes) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def find_instance(
    environments: tuple[str, ...] = _ENVIRONMENTS, markers: tuple[str, ...] = MARKERS
) -> OwnInstance | ShutdownInstance | None:
    """Return this box, by the id and key that its provider gave it, or as one that ends by its
    shutdown; None if it can't end itself."""
    every = (*map(_variables, environments), os.environ)
    alone = {
        provider: api
        for provider, api in APIS.items()
        if not any(api.of_cluster and each.get(api.of_cluster) for each in every)
    }
    for variables in every:
        for provider, api in alone.items():
            id_, key = variables.get(api.id, ""), variables.get(api.key, "")
            if _ID.fullmatch(id_) and key and key.isascii() and key.isprintable():
                return OwnInstance(provider, id_, key)
    for marker in markers:
        try:
            marked = _MARKED.fullmatch(Path(marker).read_text()[:100])
        except (OSError, UnicodeDecodeError):
            continue
        if marked:
            return ShutdownInstance(marked[1], marked[2], float(marked[3]))
    return None


def _variables(file: str) -> Mapping[str, str]:
    return dict(_LINE.findall(end_of(file).replace("\0", "\n")))
