"""Vast.ai: `/api/v1/instances` and `/api/v0/instances/{id}` of its OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field

from bootstrap.providers.api import MOST_PAGES, ApiModel, segment, too_many
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.keys import KeyPlaces
from bootstrap.providers.rented import RentedBox, RentedState

_PAGE = 25
_COLUMNS = (
    *("id", "label", "actual_status", "cur_state", "intended_status", "status_msg"),
    *("gpu_name", "num_gpus", "public_ipaddr", "ports", "ssh_host", "ssh_port", "image_runtype"),
    *("dph_total", "storage_total_cost", "start_date"),
)
_STATES = {
    "running": RentedState.RUNNING,
    "loading": RentedState.STARTING,
    "created": RentedState.STARTING,
    "exited": RentedState.STOPPED,
    "stopped": RentedState.STOPPED,
    "offline": RentedState.BROKEN,
}


class _VastPort(ApiModel):
    host_port: str = Field("", alias="HostPort")


def _mapped(ports: object) -> object:
    """The document has a list of numbers in one place, clients see which port leads where."""
    return ports if isinstance(ports, dict) else None


class _VastInstance(ApiModel):
    id: int
    label: str | None = None
    actual_status: str | None = None
    cur_state: str | None = None
    intended_status: str | None = None
    status_msg: str | None = None
    gpu_name: str | None = None
    num_gpus: int | None = None
    public_ipaddr: str | None = None
    ports: Annotated[Mapping[str, Sequence[_VastPort]] | None, BeforeValidator(_mapped)] = None
    ssh_host: str | None = None
    ssh_port: int | None = None
    image_runtype: str | None = None
    dph_total: float | None = None
    storage_total_cost: float | None = None
    start_date: float | None = None


class _VastPage(ApiModel):
    instances: Sequence[_VastInstance]
    next_token: str | None = None


class _VastAnswer(ApiModel):
    instances: _VastInstance | None = None


class _VastUser(ApiModel):
    credit: float | None = None
    balance: float | None = None


class Vast(CloudAccount):
    """An account at Vast.ai."""

    name = "vast"
    title = "Vast.ai"
    keys = KeyPlaces("VAST_API_KEY", ("~/.config/vastai/vast_api_key", "~/.vast_api_key"))
    address = "https://console.vast.ai"

    def boxes(self) -> Sequence[RentedBox]:
        """As `CloudAccount.boxes`."""
        found, token = list[RentedBox](), ""
        for _ in range(MOST_PAGES):
            query = {"limit": str(_PAGE), "select_cols": json.dumps(_COLUMNS)}
            if token:
                query["after_token"] = token
            page = self._api.get("/api/v1/instances/", _VastPage, **query)
            found += map(_rented, page.instances)
            token = page.next_token or ""
            if not token:
                return found
        raise too_many(self.name)

    def box(self, box_id: str) -> RentedBox | None:
        """As `CloudAccount.box`."""
        if not box_id.isdecimal():
            return None
        answer = self._api.find(f"/api/v0/instances/{segment(box_id)}/", _VastAnswer)
        one = answer.instances if answer else None
        return _rented(one) if one else None

    def balance(self) -> float | None:
        """As `CloudAccount.balance`."""
        user = self._api.get("/api/v0/users/current", _VastUser)
        return user.credit if user.credit is not None else user.balance


def _rented(one: _VastInstance) -> RentedBox:
    address, port = _reached(one)
    return RentedBox(
        provider=Vast.name,
        id=str(one.id),
        name=one.label or "",
        state=_state(one),
        gpu=f"{one.num_gpus or 1} x {one.gpu_name}" if one.gpu_name else "",
        address=address,
        port=port,
        user="root",
        price=one.dph_total,
        stopped_price=one.storage_total_cost,
        since=one.start_date,
        said=one.status_msg or one.actual_status or "",
    )


def _state(one: _VastInstance) -> RentedState:
    """An instance that was told to stop is stopped, whatever its container still says."""
    if "stopped" in {one.intended_status, one.cur_state}:
        return RentedState.STOPPED
    if one.actual_status is None:
        return RentedState.STARTING
    return _STATES.get(one.actual_status, RentedState.UNKNOWN)


def _reached(one: _VastInstance) -> tuple[str, int]:
    """Its own address and port, else those of the proxy, which counts Jupyter's port too."""
    if _state(one) is not RentedState.RUNNING:
        return "", 0
    mapped = (one.ports or {}).get("22/tcp") or ()
    port = mapped[0].host_port if mapped else ""
    if one.public_ipaddr and port.isdecimal():
        return one.public_ipaddr.strip(), int(port)
    if one.ssh_host and one.ssh_port:
        return one.ssh_host, one.ssh_port + ("jupyter" in (one.image_runtype or ""))
    return "", 0
