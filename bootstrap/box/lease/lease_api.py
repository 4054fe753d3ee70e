"""Requests to the provider that a box's own key allows: read this box, stop it, destroy it.

Vast.ai and RunPod give each box such a key. It is read each time from where the provider put it,
and stored nowhere. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from .lease import AccountReading

TIMEOUT_S = 15
_MOST = 1 << 20
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_LINE = re.compile(r"^(?:export )?([A-Z_]+)=[\"']?([^\"'\n]*)[\"']?$", re.MULTILINE)
_LOOPBACK = re.compile(r"http://127\.0\.0\.1:[0-9]{1,5}")
_ENVIRONMENTS = ("/proc/1/environ", "/etc/environment", "/etc/rp_environment")
_GONE = 404


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
    read: str
    stop: tuple[str, str, dict[str, str] | None]
    destroy: tuple[str, str]
    word: Callable[[dict[str, Any]], tuple[float | None, float | None]]
    """Reads an answer: when the box was started, and dollars an hour."""
    volume: str = ""
    """Where the only volume that survives a stop is mounted; "" if everything survives."""


def _vast(answer: dict[str, Any]) -> tuple[float | None, float | None]:
    one = answer.get("instances")
    if not isinstance(one, dict):
        raise NoAnswerError("the account has no such box")
    return _number(one.get("start_date")), _number(one.get("dph_total"))


def _runpod(answer: dict[str, Any]) -> tuple[float | None, float | None]:
    try:
        stamp = str(answer["startedAt"]).replace("Z", "+00:00")
        started = datetime.fromisoformat(stamp).timestamp()
    except (KeyError, ValueError):
        started = None
    return started, _number(answer.get("cost"))


def _number(value: object) -> float | None:
    is_one = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_one and 0 <= value < 1e12 else None  # type: ignore[operator,arg-type]


_OF_VAST, _OF_RUNPOD = "/api/v0/instances/{id}/", "/v2/pods/{id}"
APIS = {
    "vast": InstanceApi(
        id="CONTAINER_ID",
        key="CONTAINER_API_KEY",
        address="https://console.vast.ai",
        read=_OF_VAST,
        stop=("PUT", _OF_VAST, {"state": "stopped"}),
        destroy=("DELETE", _OF_VAST),
        word=_vast,
    ),
    "runpod": InstanceApi(
        id="RUNPOD_POD_ID",
        key="RUNPOD_API_KEY",
        address="https://api.runpod.io",
        read=_OF_RUNPOD,
        stop=("POST", f"{_OF_RUNPOD}/action", {"action": "stop"}),
        destroy=("DELETE", _OF_RUNPOD),
        word=_runpod,
        volume="/workspace",
    ),
}


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

    def ask(self) -> AccountReading:
        """Ask the account about this box. Raises KeyRefusedError, NoAnswerError."""
        answer, date = self._send("GET", self._api.read, None)
        try:
            now = parsedate_to_datetime(date or "").timestamp()
        except (TypeError, ValueError):
            raise NoAnswerError("the account's answer has no date") from None
        return AccountReading(now, *self._api.word(answer))

    def stop(self) -> None:
        """Ask for this box to be stopped. Raises as `ask`."""
        self._send(*self._api.stop)

    def destroy(self) -> None:
        """Ask for this box to be destroyed, with everything on it. Raises as `ask`."""
        self._send(*self._api.destroy, None)

    def keeps(self, places: Iterable[str], workdir: str) -> bool:
        """Return whether a stop keeps all these places. The working folder may be a volume too."""
        if not self._api.volume:
            return True
        volumes = tuple(f"{one}/" for one in (self._api.volume, workdir) if os.path.ismount(one))
        return all(f"{os.path.realpath(place)}/".startswith(volumes) for place in places)

    def _send(
        self, method: str, path: str, body: dict[str, str] | None
    ) -> tuple[dict[str, Any], str | None]:
        request = urllib.request.Request(  # noqa: S310 - of the table above
            self._address + path.format(id=self._id),
            data=json.dumps(body).encode() if body else None,
            method=method,
            headers={"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=TIMEOUT_S) as answer:
                said, date = answer.read(_MOST), answer.headers.get("Date")
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in {401, 403, _GONE}:
                raise KeyRefusedError(f"its account answers with {error.code}") from None
            raise NoAnswerError(f"its account answers with {error.code}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise NoAnswerError(f"its account can't be asked ({type(error).__name__})") from None
        try:
            found = json.loads(said or b"{}")
        except ValueError:
            found = None
        return (found if isinstance(found, dict) else {}), date


def find_instance(environments: tuple[str, ...] = _ENVIRONMENTS) -> OwnInstance | None:
    """Return this box, by the id and key that its provider gave it; None if it gave none."""
    for variables in (*map(_variables, environments), os.environ):
        for provider, api in APIS.items():
            id_, key = variables.get(api.id, ""), variables.get(api.key, "")
            if _ID.fullmatch(id_) and key and key.isascii() and key.isprintable():
                return OwnInstance(provider, id_, key)
    return None


def _variables(file: str) -> Mapping[str, str]:
    try:
        text = Path(file).read_bytes().replace(b"\0", b"\n").decode("utf-8", "replace")
    except OSError:
        return {}
    return dict(_LINE.findall(text))
