"""Vast.ai: instances, offers (`bundles`), asks, keys and volumes of its OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, RootModel

from bootstrap.errors import BoxstrapError, UsageError
from bootstrap.providers import vast_offers
from bootstrap.providers.api import (
    MOST_PAGES,
    NOTHING,
    ApiModel,
    RefusedError,
    UndecidedError,
    segment,
    too_many,
)
from bootstrap.providers.cloud_account import CloudAccount
from bootstrap.providers.keys import KeyPlaces, same_key
from bootstrap.providers.offer import Leftover, Offer, RentOrder, StopRule
from bootstrap.providers.rented import RentedBox, RentedState

_PAGE = 25
_IMAGE = "vastai/base-image:@vastai-automatic-tag"
_GONE, _NO_TEAM_KEYS = "no_such_instance", "team_ssh_keys_not_supported"
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
    """Keep only a mapping of ports, as clients see it; the document also has a list of numbers."""
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


class _VastContract(ApiModel):
    success: bool
    new_contract: int | None = None


class _VastKey(ApiModel):
    key: str | None = None
    public_key: str | None = None


class _VastKeys(RootModel[Sequence[_VastKey]]):
    """The account's public keys."""


class _VastVolume(ApiModel):
    id: int
    disk_space: float | None = None
    storage_total_cost: float | None = None


class _VastVolumes(ApiModel):
    volumes: Sequence[_VastVolume] = ()


class Vast(CloudAccount):
    """An account at Vast.ai."""

    name = "vast"
    title = "Vast.ai"
    keys = KeyPlaces("VAST_API_KEY", ("~/.config/vastai/vast_api_key", "~/.vast_api_key"))
    address = "https://console.vast.ai"
    offers_need_key = False
    stops = StopRule("everything", "its disk, typically at a higher price than while it runs")
    final_refusals: ClassVar[Mapping[object, str]] = {
        **CloudAccount.final_refusals,
        "insufficient_credit": "your balance doesn't cover it",
    }

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

    def _catalog(self, order: RentOrder) -> Sequence[Offer]:
        wanted = vast_offers.wanted(order)
        found = self._api.search("/api/v0/bundles/", wanted, vast_offers.VastOffers).offers
        return [vast_offers.offered(self.name, offer, order) for offer in found]

    def add_key(self, public_key: str) -> None:
        """As `CloudAccount.add_key`. A team's API key can't add any: `_rent` sets it on the box."""
        known = self._api.get("/api/v0/ssh/", _VastKeys).root
        if any(same_key(public_key, one.key or one.public_key or "") for one in known):
            return
        try:
            self._api.post("/api/v0/ssh/", {"ssh_key": public_key}, NOTHING)
        except RefusedError as error:
            if error.code != _NO_TEAM_KEYS:
                raise

    def _rent(self, offer: Offer, order: RentOrder, mark: str, public_key: str) -> str:
        if order.volume and not order.volume.isdecimal():
            raise UsageError("a volume at Vast.ai is a number.", where=order.volume)
        wanted: dict[str, Any] = {
            "image": order.image or _IMAGE,
            "label": mark,
            "disk": order.disk_gb,
            "runtype": "ssh_direc ssh_proxy",
            "target_state": "running",
            "cancel_unavail": True,
        }
        if offer.bid is not None:
            wanted["price"] = offer.bid
        if order.volume:
            wanted["volume_info"] = {
                "create_new": False,
                "volume_id": int(order.volume),
                "mount_path": order.volume_at,
            }
        try:
            made = self._api.put(f"/api/v0/asks/{segment(offer.id)}/", wanted, _VastContract)
        except RefusedError as error:
            self._end_failed_bid(error.answer.get("new_contract"))
            raise
        if not made.success:
            self._end_failed_bid(made.new_contract)
            raise RefusedError("its bid failed.", where=self.name)
        if made.new_contract is None:
            raise UndecidedError("it says that it rented a box, but not which.", where=self.name)
        box_id = str(made.new_contract)
        # The account already has the key, unless it is a team's. The box is rented, whatever this
        # request answers.
        with suppress(BoxstrapError):
            self._api.post(f"/api/v0/instances/{box_id}/ssh/", {"ssh_key": public_key}, NOTHING)
        return box_id

    def _end_failed_bid(self, contract: object) -> None:
        """Destroy the contract that a failed bid may have made anyway: it costs money."""
        if isinstance(contract, int):
            try:
                self.destroy(str(contract))
            except BoxstrapError as error:
                raise UndecidedError(
                    f"its bid failed, and left contract {contract}, which could not be destroyed: "
                    f"{error.what}",
                    where=self.name,
                ) from None

    def destroy(self, box_id: str) -> None:
        """As `CloudAccount.destroy`."""
        try:
            ended = self._api.delete(f"/api/v0/instances/{segment(box_id)}/", _VastContract)
        except RefusedError as error:
            if error.code != _GONE:
                raise
            return
        if ended and not ended.success:
            raise UndecidedError(f"it didn't destroy {box_id}.", where=self.name)

    def stop(self, box_id: str) -> None:
        """As `CloudAccount.stop`."""
        self._api.put(f"/api/v0/instances/{segment(box_id)}/", {"state": "stopped"}, NOTHING)

    def leftovers(self) -> Sequence[Leftover]:
        """As `CloudAccount.leftovers`."""
        found = self._api.get("/api/v0/volumes/", _VastVolumes).volumes
        return [
            Leftover(self.name, str(one.id), "", "volume", one.disk_space, one.storage_total_cost)
            for one in found
        ]


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
        other_ways=_proxy(one),
    )


def _state(one: _VastInstance) -> RentedState:
    """Return the state; after a request to stop that is STOPPED, whatever the container says."""
    if "stopped" in {one.intended_status, one.cur_state}:
        return RentedState.STOPPED
    if one.actual_status is None:
        return RentedState.STARTING
    return _STATES.get(one.actual_status, RentedState.UNKNOWN)


def _reached(one: _VastInstance) -> tuple[str, int]:
    """Return its own address and port, else those of the proxy; "" and 0 if it isn't running."""
    if _state(one) is not RentedState.RUNNING:
        return "", 0
    mapped = (one.ports or {}).get("22/tcp") or ()
    port = mapped[0].host_port if mapped else ""
    if one.public_ipaddr and port.isdecimal():
        return one.public_ipaddr.strip(), int(port)
    return next(iter(_proxy(one)), ("", 0))


def _proxy(one: _VastInstance) -> tuple[tuple[str, int], ...]:
    """Return the proxy's address and this instance's own port there, one higher with Jupyter."""
    if not (one.ssh_host and one.ssh_port):
        return ()
    return ((one.ssh_host, one.ssh_port + ("jupyter" in (one.image_runtype or ""))),)
